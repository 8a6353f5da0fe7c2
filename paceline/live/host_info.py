"""The machine that a party is on."""

from __future__ import annotations

import functools
import os
from pathlib import Path


def cores() -> int:
    """Returns the cores that this process may use; all of the machine's where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Returns the bytes of memory that the machine has; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


@functools.cache
def boot_id() -> str:
    """Returns a text that two processes share exactly when one kernel runs both, whatever containers they are in.

    It is empty where the system does not say.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
