"""The runs beside the one that the page shows, and the curves of some of them for a comparison.

Runs are the folders with a trace in one folder, such as runs/ or that of a race. Of a run that is over summary.json has
the figures. Of one that goes on its trace is read, from where it was read before.
"""

from __future__ import annotations

import json
import math
import threading
import tomllib
from pathlib import Path
from typing import Any

from paceline.core.errors import PacelineError
from paceline.core.files.regular_file import read_regular
from paceline.core.trace import Ended, Evaluated, Span
from paceline.observe.trace.trace_file import TRACE
from paceline.observe.trace.trace_tail import Follower

RUNS_MAX = 50
"""Runs that are listed, the newest ones."""
COMPARED_MAX = 6
"""Runs whose curves are drawn together: more colours nobody tells apart."""
POINTS_MAX = 300
"""Points of a curve."""
READS_MAX = 8
"""MiB of a trace that one request reads; the next one reads on."""


class _Curve:
    """Follows the trace of one run for its evaluations and samples."""

    def __init__(self, run: Path) -> None:
        self._follower = Follower(run / TRACE)
        self.points: list[tuple[float, float, float, int]] = []
        self.now, self.samples, self.ended = 0.0, 0, ""

    def read(self) -> None:
        """Reads what has come, up to READS_MAX MiB. A trace that is none has no curve."""
        for _ in range(READS_MAX):
            try:
                records = self._follower.read()
            except PacelineError:
                return
            if not records:
                return
            if self._follower.begun_anew:
                self.points, self.now, self.samples, self.ended = [], 0.0, 0, ""
            for record in records:
                self._add(record)

    def _add(self, record: Any) -> None:
        """Takes a record."""
        match record:
            case Evaluated(at=at, accuracy=accuracy, loss=loss, samples=samples) if math.isfinite(at):
                self.points.append((at, accuracy, loss, samples))
            case Span(activity="computing", samples=samples):
                self.samples += samples
            case Ended(reason=reason):
                self.ended = reason
        if math.isfinite(record.at):
            self.now = max(self.now, record.at)

    def shown(self) -> list[list[float | None]]:
        """Returns time, accuracy, loss and samples of at most POINTS_MAX evaluations, with the first and the last."""
        step = max(1, math.ceil(len(self.points) / POINTS_MAX))
        kept = self.points[::step] + ([self.points[-1]] if self.points and (len(self.points) - 1) % step else [])
        return [[round(value, 4) if math.isfinite(value) else None for value in point] for point in kept]


class RunList:
    """Lists runs, and keeps what was read of those that are compared. Any thread may call it."""

    def __init__(self) -> None:
        self._curves: dict[Path, _Curve] = {}
        self._lock = threading.Lock()

    def rows(self, run: Path) -> list[dict[str, Any]]:
        """Returns the runs in the folder of `run`, the newest first; `run` itself is among them."""
        found = sorted((trace.parent for trace in run.resolve().parent.glob(f"*/{TRACE}")), key=_begun, reverse=True)
        own = run.resolve()
        listed = found[:RUNS_MAX]
        if own in found and own not in listed:
            listed.append(own)
        return [_row(path, is_own=path == own) for path in listed]

    def curves(self, run: Path, names: list[str]) -> dict[str, Any]:
        """Returns the curves of these runs beside `run`. A name of none is left out: no path is read."""
        beside = {trace.parent.name: trace.parent for trace in run.resolve().parent.glob(f"*/{TRACE}")}
        curves = {}
        with self._lock:
            for name in [name for name in dict.fromkeys(names) if name in beside][:COMPARED_MAX]:
                curve = self._curves.setdefault(beside[name], _Curve(beside[name]))
                curve.read()
                curves[name] = {
                    "points": curve.shown(),
                    "now": round(curve.now, 2),
                    "samples": curve.samples,
                    "rate": round(curve.samples / curve.now) if curve.now else 0,
                    "ended": curve.ended,
                    "scheme": _scheme(beside[name]),
                }
        return curves


def _begun(run: Path) -> tuple[float, str]:
    """Returns when a run began, and its name."""
    try:
        return (run / "config.toml").stat().st_mtime, run.name
    except OSError:
        return 0.0, run.name


def _scheme(run: Path) -> str:
    """Returns the scheme of a run, "" where its configuration does not say."""
    try:
        return str(tomllib.loads(read_regular(run / "config.toml").decode())["run"]["scheme"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _row(run: Path, *, is_own: bool) -> dict[str, Any]:
    """Returns the row of one run."""
    row: dict[str, Any] = {"name": run.name, "scheme": _scheme(run), "own": is_own, "ended": "", "accuracy": None}
    row |= {"seconds": None, "samples": None}
    try:
        summary = json.loads(read_regular(run / "summary.json"))
        if isinstance(summary, dict):
            row["ended"] = str(summary.get("reason") or "over")
            row["accuracy"], row["seconds"] = summary.get("test_accuracy"), summary.get("seconds")
            row["samples"] = summary.get("samples")
    except (OSError, ValueError):
        row["ended"] = ""
    return row
