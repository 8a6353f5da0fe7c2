"""Engines for real, over hosts of the lab: each trains by one command, and leaves nobody when it is interrupted.

ssh, which needs no engine, has its own file.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.engines import ENGINES
from tests.lab.lab import Lab, missing, opened
from tests.lab.launch_run import Launched
from tests.launch.process_tree import all_gone, descendants, within

WHY_NOT = missing()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.timeout(400)]
TRAIN = ["paceline", "train", "--data", "digits", "--scheme", "gsp", "--epochs", "0", "--seconds", "600"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield from opened(tmp_path, 2)


def test_the_table_in_the_documentation_has_every_launcher() -> None:
    rows = (Path(__file__).parents[2] / "docs/launch.md").read_text().splitlines()
    assert [name for name in ENGINES if not any(row.startswith(f"| `{name}`") for row in rows)] == []


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_the_version_of_an_engine_is_told_while_it_is_not_up(name: str) -> None:
    if why_not := ENGINES[name].missing():
        pytest.skip(why_not)
    assert re.fullmatch(r"[\w ().,+-]*\d\.\d.*", told := ENGINES[name].told_version()), told


@pytest.mark.parametrize("name", sorted({*ENGINES} - {"ssh"}))
def test_it_trains_on_two_hosts_by_one_command_and_leaves_nobody_when_it_is_interrupted(name: str, lab: Lab) -> None:
    engine = ENGINES[name]
    if why_not := engine.missing():
        pytest.skip(why_not)
    with engine.running(lab) as (words, environment):
        launched = Launched(lab, *words, *TRAIN, "--out", "run", **environment)
        assert launched.says("accuracy", 150), launched.said
        assert "security: TLS 1.3 on 10.77.0.1" in launched.said
        family = [launched.process.pid, *descendants(launched.process.pid)]
        launched.process.send_signal(signal.SIGINT)
        assert launched.ends(60) == 130, launched.said
        assert all_gone(family)
        for host in lab.names:
            assert within(30, lambda host=host: not left(lab, host, name)), left(lab, host, name)  # type: ignore[misc]
    assert json.loads((lab.folder / "run" / "summary.json").read_text())["samples"] > 0
    trace = [json.loads(line) for line in (lab.folder / "run" / "trace.jsonl").read_text().splitlines()]
    assert {row["host"] for row in trace if "host" in row and row.get("party", "").startswith("worker")} == {"h1", "h2"}


def left(lab: Lab, host: str, engine: str) -> list[str]:
    """What runs there besides the engine itself."""
    return [line for line in lab.running(host) if not any(daemon in line for daemon in ENGINES[engine].quiet)]
