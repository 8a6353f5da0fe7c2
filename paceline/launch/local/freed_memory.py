"""Keeps the memory that a training step frees in the process, for the next step.

A step allocates its activations and frees them. glibc gives the free end of the heap back to the kernel, and the next
step pays for the same pages again: 5,000 to 12,000 page faults and 12 to 27 ms in a step of 150 ms (ResNet-18 of width
0.25, a batch of 64). Gradients in one buffer make it worse: in a plain loop they are allocated after the activations,
and hold the end of the heap in its place until the next step.

So a worker keeps its heap at the size of its largest step. What is longer than 32 MiB is mapped and unmapped as before.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`, of malloc.h."""
NEVER = -1
MAPPED_BYTES_MIN = 32 << 20
"""The most that glibc allows on 64 bits, and the value that its own tuning ends at."""
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")
"""Variables by which users tune the same."""


def keep_freed_memory(environment: Mapping[str, str]) -> bool:
    """Lets this process keep what it frees; returns False where it does not.

    Nothing changes where `environment` has settings of the user for this, and where the C library is not glibc.
    """
    if any(name in environment for name in SETTINGS) or "glibc.malloc" in environment.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is None:
        return False
    # The first call ends glibc's own tuning of both, so the second must not be left out.
    return bool(mallopt(M_TRIM_THRESHOLD, NEVER) and mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN))
