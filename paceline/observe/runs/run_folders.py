"""Finds runs on disk by folder, and groups those that differ in nothing but their seed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.regular_file import read_regular
from paceline.core.trace import Record
from paceline.observe.runs.summary import SUMMARY, Summary, read_summary
from paceline.observe.runs.summary_from_trace import REASON, rebuilt
from paceline.observe.trace.trace_file import TRACE, read_trace

CONFIG = "config.toml"
"""The file with a run's configuration, in its folder."""
OF_ONE_RUN = {
    "run.scheme",
    "run.seed",
    "run.out",
    "run.hook",
    "run.verbose",
    "run.trace_mb",
    "run.record",
    "run.record_mb",
}
"""Settings that may differ between two runs of one experiment, and `scheme`, which is in its name anyway."""
DIFFERING_MAX = 3
"""Settings that a group's name has at most."""
Finder = Callable[[Path], "RunFolder | None"]
"""Finds another kind of run in a folder, such as ESync's logs; returns None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Describes one run. `facts`: its settings by `section.key`.

    `records` reads the trace from its beginning at every call, and may raise PacelineError.
    """

    path: Path
    summary: Summary
    facts: Mapping[str, Any] = field(default_factory=dict)
    records: Callable[[], Iterable[Record]] = tuple

    @property
    def shares(self) -> str:
        """Says who got which samples; `uniform` is i.i.d."""
        return str(self.facts.get("data.partition", "uniform"))


@dataclass(frozen=True, slots=True)
class Group:
    """Holds runs of one experiment under several seeds."""

    name: str
    runs: tuple[RunFolder, ...]

    @property
    def first(self) -> Summary:
        """Returns the summary of the first run."""
        return self.runs[0].summary

    @property
    def summaries(self) -> list[Summary]:
        """Returns the summaries of all runs."""
        return [run.summary for run in self.runs]


def find(paths: Iterable[str], others: Sequence[Finder] = ()) -> tuple[list[RunFolder], list[str]]:
    """Returns the runs in these folders, or one folder further down, as `race` leaves them; and notes.

    A note names what was skipped, or a run that has not ended, whose summary is made of its trace. Raises
    ConfigError when there is no run at all.
    """
    runs: list[RunFolder] = []
    notes: list[str] = []
    for path in map(Path, paths):
        try:
            inside = list(_inside(path, others))
        except PacelineError as error:
            notes.append(f"{error}; skipped")
            continue
        runs += inside
        notes += [f"{r.path}: no {SUMMARY}, since it {REASON}; from its trace" for r in inside if _unended(r)]
        if not inside:
            notes.append(f"{path}: {'not the folder of a run' if path.exists() else 'no such folder'}; skipped")
    if not runs:
        raise ConfigError("\n".join([*notes, "no run was found: name the folders that --out of train or race named"]))
    return runs, notes


def _unended(run: RunFolder) -> bool:
    """Returns True for a run whose summary had to be made from its trace."""
    return run.summary.reason == REASON


def _inside(path: Path, others: Sequence[Finder]) -> Iterator[RunFolder]:
    """Yields the run in a folder, or the runs in its sub-folders."""
    own = _run(path, others)
    if own:
        yield own
    elif path.is_dir():
        yield from (run for child in sorted(path.iterdir()) if child.is_dir() and (run := _run(child, others)))


def _run(path: Path, others: Sequence[Finder]) -> RunFolder | None:
    """Returns the run in a folder, or None. Raises PacelineError for a run that cannot be read."""
    summary, trace = path / SUMMARY, path / TRACE
    if not summary.is_file() and not trace.is_file():
        return next((run for other in others if (run := other(path))), None)
    facts = _facts(path / CONFIG)
    known = read_summary(summary) if summary.is_file() else rebuilt(read_trace(trace), facts)
    return RunFolder(path=path, summary=known, facts=facts, records=lambda: read_trace(trace))


def _facts(path: Path) -> dict[str, Any]:
    """Returns the settings of a run by `section.key`; {} without a configuration. Raises PacelineError."""
    if not path.is_file():
        return {}
    try:
        sections = tomllib.loads(read_regular(path).decode())
    except (OSError, ValueError) as error:
        raise PacelineError(f"{path}: the settings cannot be read ({error})") from error
    return {
        f"{s}.{key}": value for s, keys in sections.items() if isinstance(keys, dict) for key, value in keys.items()
    }


# ---- together ------------------------------------------------------------------------------------------------
def groups(runs: Sequence[RunFolder]) -> list[Group]:
    """Returns the runs of one experiment together, in the order in which they were given."""
    by_setting: dict[str, list[RunFolder]] = {}
    for run in runs:
        by_setting.setdefault(repr(sorted(_setting(run).items())), []).append(run)
    settings = [_setting(members[0]) for members in by_setting.values()]
    names = [_name(setting, [s for s in settings if s["scheme"] == setting["scheme"]]) for setting in settings]
    return [Group(name, tuple(members)) for name, members in zip(names, by_setting.values(), strict=True)]


def _setting(run: RunFolder) -> dict[str, Any]:
    """Returns everything in which runs of one experiment must agree."""
    s = run.summary
    own = {"scheme": s.scheme, "driver": s.driver, "model": s.model, "data": s.data, "workers": len(s.workers)}
    asked = {key: value for key, value in run.facts.items() if key not in OF_ONE_RUN}
    return own | {"servers": s.servers, "target": s.target_accuracy} | s.parameters | asked


def _name(setting: dict[str, Any], namesakes: Sequence[dict[str, Any]]) -> str:
    """Returns the scheme, and the settings that tell this group from others of that scheme."""
    differing: dict[str, str] = {}
    for key, value in setting.items():
        if any(other.get(key) != value for other in namesakes):
            text = ",".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value) if _is_list(value) else value
            differing.setdefault(key.rpartition(".")[2], str(text))
    told = [f"{key}={text}" for key, text in differing.items()]
    return " ".join([setting["scheme"], *told[:DIFFERING_MAX], *(["..."] if len(told) > DIFFERING_MAX else [])])


def _is_list(value: Any) -> bool:
    """Returns True for a setting that has a value for each worker."""
    return isinstance(value, list | tuple)
