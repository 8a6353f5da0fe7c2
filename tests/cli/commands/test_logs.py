"""`paceline logs`: the lines of each process, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import main
from tests.cli.commands.runs import a_status, told
from tests.cli.conftest import refused_here

Capture = pytest.CaptureFixture[str]


pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


def test_logs_come_by_party_in_order_and_the_last_lines_of_each(here: Path, capsys: Capture) -> None:
    a_status(here / "a", state="over")
    logs = here / "a" / "logs"
    logs.mkdir()
    assert "nobody has printed anything in runs/a" in (main(["logs", "a"]), capsys.readouterr().err)[1]
    (logs / "worker-2.log").touch()
    assert "how the run stands: paceline status runs/a" in (main(["logs", "a"]), capsys.readouterr().err)[1]
    for name, text in {"worker-10": "a\nb\nc\n", "worker-2": "d\ne\nf", "server-0": "g\n"}.items():
        (logs / f"{name}.log").write_text(text)
    assert told(capsys, "logs", "a", "--tail", "1", "-f").splitlines() == [
        "[server 0] g",
        "[worker 2] f",
        "[worker 10] c",
    ]
    assert told(capsys, "logs", "a", "--party", "worker 2") == "[worker 2] d\n[worker 2] e\n[worker 2] f"
    a_status(here / "a", state="training")  # and the line goes on
    assert told(capsys, "logs", "a", "--party", "worker 2") == "[worker 2] d\n[worker 2] e"
    assert "worker-1 has printed nothing; did you mean" in refused_here(capsys, "logs", "a", "--party", "worker-1")
    assert "--tail all: a number of lines" in refused_here(capsys, "logs", "a", "--tail", "all")
