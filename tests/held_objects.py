"""Counts what an object holds, for tests that nothing grows with the length of a run."""

from __future__ import annotations

import gc
import types

APART = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
"""What is there once in a process, whoever refers to it."""


def held(root: object) -> int:
    """Returns the number of objects that can be reached from `root`, numbers and strings included."""
    seen, pending = {id(root)}, [root]
    while pending:
        for found in gc.get_referents(pending.pop()):
            if id(found) not in seen and not isinstance(found, APART):
                seen.add(id(found))
                pending.append(found)
    return len(seen)
