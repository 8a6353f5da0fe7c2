"""A process keeps the memory that it frees, unless its user has said otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.launch.local.freed_memory import SETTINGS, keep_freed_memory

FAULTS = """
import os, resource
from paceline.launch.local.freed_memory import keep_freed_memory
kept = keep_freed_memory(os.environ)
def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytearray(b"x" * 4) * (1 << 20) for _ in range(8)]  # 4 MiB each
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(kept, max([step() for _ in range(6)][2:]))
"""


def faults(**settings: str) -> tuple[bool, int]:
    """Whether a process keeps what it frees, and the page faults of a step that uses 32 MiB."""
    done = subprocess.run([sys.executable, "-c", FAULTS], env=settings, capture_output=True, text=True, check=True)
    kept, count = done.stdout.split()
    return kept == "True", int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_a_step_finds_the_memory_of_the_step_before_in_its_place() -> None:
    kept, count = faults()
    assert kept
    assert count < 100  # 8,192 pages


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_what_the_user_has_set_is_left_alone() -> None:
    kept, count = faults(MALLOC_MMAP_THRESHOLD_="65536")
    assert not kept
    assert count > 8000


@pytest.mark.parametrize("name", [*SETTINGS, "GLIBC_TUNABLES"])
def test_every_setting_of_the_user_counts(name: str) -> None:
    assert not keep_freed_memory({name: "glibc.malloc.trim_threshold=1"})


def test_another_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.launch.local.freed_memory.ctypes.CDLL", lambda _name: object())
    assert not keep_freed_memory({})
