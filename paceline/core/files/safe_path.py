"""Turns names that come from elsewhere into paths, and paths into text, in one place."""

from __future__ import annotations

import os
import re
from pathlib import Path

from paceline.core.errors import ConfigError

_PART = re.compile(r"[A-Za-z0-9._-]{1,64}")


def shown_path(path: str | os.PathLike[str]) -> str:
    """Returns `path` as text that any file and message can hold: bytes of a name that are no UTF-8 as `\\xff`."""
    return os.fsencode(path).decode("utf-8", errors="backslashreplace")


def safe_join(root: str | Path, *parts: str) -> Path:
    """Returns the path of `parts` under `root`, an absolute one.

    Each part is one name of 1 to 64 letters, digits, dots, dashes and underscores, and no `.` or `..`; the path may
    lead through links, but not out of `root`. Raises ConfigError.
    """
    for part in parts:
        if not _PART.fullmatch(part) or part in (".", ".."):
            raise ConfigError(f"{part!r} is not a file name: give 1 to 64 of A-Z a-z 0-9 . _ -")
    base = Path(root).resolve()
    path = base.joinpath(*parts)
    if not path.resolve().is_relative_to(base):
        raise ConfigError(f"{path} leads out of {base}")
    return path
