"""The machine that a party is on."""

from __future__ import annotations

import functools
import os
from pathlib import Path


def cores() -> int:
    """That this process may use; all of the machine's where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """That the machine has; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


@functools.cache
def boot_id() -> str:
    """The same in two processes, of whatever containers, exactly when one kernel runs both; empty if it is not said."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
