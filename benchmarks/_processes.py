"""Processes of a run, found from outside; for the benchmarks that kill or stop some."""

from __future__ import annotations

from pathlib import Path


def pid_of(root: int, name: str) -> int:
    """Of the process of that name among the descendants of `root`. Linux."""
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and (path / "comm").read_text().strip() == name:
                pid = int(path.name)
                while pid > 1 and pid != root:
                    pid = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
                if pid == root:
                    return int(path.name)
        except OSError:  # it has ended meanwhile
            continue
    raise SystemExit(f"found no {name}: is this Linux?")
