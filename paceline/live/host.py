"""The machine that a party is on."""

from __future__ import annotations

import os


def cores() -> int:
    """That this process may use; all of the machine's where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
