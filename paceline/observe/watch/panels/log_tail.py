"""The last lines of what processes of a run have printed: RUN/logs/*.log, and console.log of one without a terminal."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from paceline.core.files.regular_file import open_regular

BYTES_MAX = 1 << 16
"""Bytes at the end of a log that are read."""
LINES_MAX = 200
LINE_MAX = 1000
"""Characters of a line that are shown."""
LOGS_MAX = 2000
"""Logs that are listed."""


def logs_of(run: Path) -> list[Path]:
    """Returns the logs of a run; the one that was written to last is the first."""
    found = [*run.glob("logs/*.log"), run / "console.log"]
    dated = [(_changed(path), path) for path in found]
    return [path for at, path in sorted(dated, key=lambda of: (-of[0], of[1].name)) if at > 0][:LOGS_MAX]


def _changed(path: Path) -> float:
    """Returns when a file was written to last; 0 where it cannot be read, is empty, or is none."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return 0.0
    return found.st_mtime if found.st_size and stat.S_ISREG(found.st_mode) else 0.0


def log_tail(run: Path, wanted: str, lines: int) -> dict[str, Any]:
    """Returns the names of all logs, and the last lines of the one `wanted`, or of the one written to last.

    Only a name of the list is read: a path that somebody makes up is not.
    """
    logs = {path.stem: path for path in logs_of(run)}
    name = wanted if wanted in logs else next(iter(logs), "")
    return {"names": sorted(logs), "name": name, "lines": _last(logs[name], min(lines, LINES_MAX)) if name else []}


def _last(path: Path, count: int) -> list[str]:
    """Returns the last lines of a file, each cut to LINE_MAX characters."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - BYTES_MAX))
            text = file.read(BYTES_MAX).decode(errors="replace")
    except OSError:
        return []
    lines = text.removesuffix("\n").split("\n")[1 if size > BYTES_MAX else 0 :]
    # A progress bar writes over its own line again and again: its last state is what a terminal would show.
    return [line.rpartition("\r")[2][:LINE_MAX] for line in lines[-count:]]
