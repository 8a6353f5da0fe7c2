"""How the loops of the codecs are compiled."""

from __future__ import annotations

from types import FunctionType

import numpy as np

from paceline.codec.kernels.cpu import kernel


def add_one(x):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        x[i] += 1


def test_a_loop_is_compiled_where_machine_code_cannot_be_kept() -> None:
    nowhere = FunctionType(add_one.__code__.replace(co_filename="<nowhere>"), globals())
    x = np.zeros(3, np.float32)
    kernel(nowhere)(x)
    assert x.tolist() == [1, 1, 1]
