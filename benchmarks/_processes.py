"""A run of `paceline train` and its processes; for the benchmarks that kill, stop or watch some. Linux."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def training(out: Path, *words: str, seconds: float = 1e5, step_ms: float = 10) -> Iterator[subprocess.Popen[str]]:
    """`paceline train WORDS` with such steps, for so long unless it is ended: in order, or else at once."""
    command = [sys.executable, "-m", "paceline", "train", "--step-ms", str(step_ms), "--epochs", "0"]
    command += ["--seconds", str(seconds)]
    run = subprocess.Popen(
        [*command, "--out", str(out), *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield run
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    finally:
        run.kill()
        run.wait()


def under_way(run: subprocess.Popen[str], out: Path, updates: int) -> None:
    """Until the trace of `run` has so many updates of a shard."""
    trace, began = out / "trace.jsonl", time.monotonic()
    while not trace.exists() or trace.read_text().count('"kind":"applied"') < updates:
        if run.poll() is not None or time.monotonic() - began > 120:
            raise SystemExit("the run did not get under way")
        threading.Event().wait(0.05)


def descendants(root: int) -> list[int]:
    """`root` and all that it started, those of theirs included."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def by_name(root: int) -> dict[str, int]:
    """Process ids of the descendants of `root`."""
    found = {}
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            found[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
    return found


def pid_of(root: int, name: str) -> int:
    """Of the process of that name among the descendants of `root`."""
    if name not in (there := by_name(root)):
        raise SystemExit(f"found no {name}: is this Linux?")
    return there[name]
