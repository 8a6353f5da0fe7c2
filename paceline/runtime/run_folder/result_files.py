"""Writes what a run leaves: files in its folder, and those that had to go elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from paceline.checkpoint.folder_store import MODEL
from paceline.core.errors import PacelineError
from paceline.observe.runs.summary import SUMMARY
from paceline.observe.trace.trace_file import TRACE
from paceline.runtime.run_folder import fallback_folder
from paceline.runtime.run_folder.lock_file import LockFence

CURVE, CONFIG = "curve.png", "config.toml"
PART_SIZES = "part_sizes.json"
"""What `part_sizes.py` writes."""
ORDER = (CONFIG, TRACE, SUMMARY, MODEL, CURVE, PART_SIZES)
"""The order in which the command names the files to the user."""


class Results:
    """Writes and lists the results of the run in `out`; it is made before anybody writes there."""

    def __init__(self, out: Path, token: str, say: Callable[[str], None], fence: LockFence | None = None) -> None:
        """`token`: of the run; `say` shows a line to the user; `fence` says whether the folder is still this run's."""
        self._out, self._token, self._say, self._fence = out, token, say, fence
        self._model_before = _changed(out / MODEL)  # an earlier incarnation of this run may have left one
        self._written: list[str] = []

    def write(self, name: str, write: Callable[[Path], None]) -> bool:
        """Returns True if the file was written, here or elsewhere; a failure is said and does not end the run."""
        if self._fence is not None and (why := self._fence.why_not):
            self._say(f"{name} was not written: {why}")
            return False
        try:
            line = fallback_folder.put(self._out, name, self._token, write)
        except (OSError, PacelineError) as error:
            with contextlib.suppress(OSError):
                (self._out / name).unlink(missing_ok=True)  # it would be that of an earlier incarnation
            self._say(f"{name} was not written: {getattr(error, 'strerror', None) or error}")
            return False
        if line:
            self._say(line)
        self._written.append(name)
        return True

    def in_place(self, name: str) -> bool:
        """Returns True if the file is in the folder of the run, where readers look for it."""
        return name in self.left.get(str(self._out), ())

    @property
    def model(self) -> bool:
        """Returns True if the evaluator of this run has saved a model."""
        return (
            _changed(self._out / MODEL) != self._model_before or fallback_folder.found(MODEL, self._token) is not None
        )

    @property
    def left(self) -> dict[str, list[str]]:
        """Returns the names of its files, by folder."""
        there = [name for name in (CONFIG, TRACE) if os.path.exists(self._out / name)]
        names = {*there, *self._written, *([MODEL] if self.model else [])}
        places: dict[str, list[str]] = {}
        for name in sorted(names, key=ORDER.index):
            elsewhere = fallback_folder.found(name, self._token)
            places.setdefault(str(elsewhere.parent if elsewhere else self._out), []).append(name)
        return places


def _changed(path: Path) -> int:
    """Returns when the file was changed, in nanoseconds; 0 where there is none."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0
