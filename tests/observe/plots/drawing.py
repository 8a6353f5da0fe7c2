"""Figures of made-up runs, and the words on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.core.trace import Record, Span
from paceline.observe.plots.digest import RunDigest, entries
from paceline.observe.runs.run_folders import RunFolder, groups
from tests.observe.fake_runs import evaluations, summary


def spans(workers: int) -> list[Record]:
    """One step and one exchange a second, for ten seconds."""
    return [
        Span(at=at + 1.0, rank=rank, activity="computing", seconds=1.0, steps=1, samples=32, exchanges=1)
        for at in range(10)
        for rank in range(workers)
    ]


def run(scheme: str, seed: int = 0, records: list[Record] | None = None, **changed: Any) -> RunFolder:
    facts = changed.pop("facts", {})
    kept = [*evaluations(), *spans(4)] if records is None else records
    s = summary(scheme, seed=seed, **changed)
    return RunFolder(path=Path(f"{scheme}{seed}"), summary=s, facts=facts, records=lambda: kept)


def drawn(*runs: RunFolder) -> list[RunDigest]:
    return entries(groups(runs))[0]


def words(figure: Any) -> list[str]:
    texts = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [text.get_text() for text in texts if text.get_text()]
