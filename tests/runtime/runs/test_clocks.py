"""The time of day decides nothing: deadlines and silence go by clocks that never run backwards."""

from __future__ import annotations

import ast
import itertools
import time
from pathlib import Path

import pytest

import paceline
from tests.runtime.conftest import Runner
from tests.runtime.one_process import assert_same, config_for, saved

PACKAGE = Path(paceline.__file__).parent
ASKED_BY = {
    "live/security/certificate_authority.py",  # certificates hold from a day before
    "runtime/run_folder/status_file.py",  # status.json, for people
    "observe/export/opentelemetry.py",  # spans, for people
    "cli/commands/status.py",  # how old status.json is
    "launch/detached/other_host.py",  # when a run elsewhere began, for whoever looks for the newest
}


def test_nobody_else_asks_for_it() -> None:
    asking = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.time_ns", "datetime.now"):
                asking.add(str(file.relative_to(PACKAGE)))
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "datetime.datetime.now":
                asking.add(str(file.relative_to(PACKAGE)))
    assert asking <= ASKED_BY


def test_a_run_on_a_clock_that_jumps_by_an_hour_trains_the_same_model(
    threads: Runner, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = config_for(out, steps=20)
    threads(quiet)
    hours, now = itertools.cycle((3600.0, -3600.0, 7200.0, 0.0)), time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(hours))
    jumping = config_for(tmp_path / "jumping", steps=20)
    assert threads(jumping).reason == "steps"
    assert_same(saved(jumping), saved(quiet))
