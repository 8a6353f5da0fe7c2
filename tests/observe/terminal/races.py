"""Made-up runs of a race."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.observe.runs.run_folders import RunFolder
from tests.observe.fake_runs import summary


def run(scheme: str, seed: int = 0, facts: dict[str, Any] | None = None, **changed: Any) -> RunFolder:
    return RunFolder(path=Path(f"{scheme}{seed}"), summary=summary(scheme, seed=seed, **changed), facts=facts or {})


RACES = [
    run("bsp", 0, seconds_to_target=20.0),
    run("esync", 0, seconds_to_target=5.0),
    run("bsp", 1, seconds_to_target=30.0),
    run("esync", 1, seconds_to_target=6.0),
    run("esync", 2, seconds_to_target=None),
]
