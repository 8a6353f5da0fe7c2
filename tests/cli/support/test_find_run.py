"""`paceline status`, `kill` and `logs`: they see the run they are given, and nobody else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from paceline.cli.support.run_and_report import _signals, ending_in_order
from tests.cli.commands.runs import a_status, told
from tests.cli.conftest import refused_here

Capture = pytest.CaptureFixture[str]


pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


def test_what_the_first_sigterm_ends_a_second_does_not_cut_short() -> None:
    done = []
    with pytest.raises(SystemExit) as end, ending_in_order():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.raise_signal(number)
                done.append(number)
    assert (end.value.code, len(done)) == (143, 2)


def test_under_nohup_the_loss_of_the_terminal_ends_nothing() -> None:
    before, heard = signal.signal(signal.SIGHUP, signal.SIG_IGN), []
    try:
        with ending_in_order(), _signals(heard.append):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert heard == ["SIGTERM"]


def test_without_a_name_the_newest_run_is_meant(here: Path, capsys: Capture) -> None:
    assert "no run below runs/" in refused_here(capsys, "status")
    a_status(here / "a", started=2.0)
    (here / "race").mkdir()
    a_status(here / "race" / "bsp", started=1.0)
    assert told(capsys, "status").startswith("runs/a: bsp, training")


@pytest.mark.parametrize("verb", ["status", "kill", "logs", "attach"])
def test_a_wrong_name_is_told_with_the_way_out(verb: str, here: Path, capsys: Capture) -> None:
    a_status(here / "nightly")
    assert "did you mean 'nightly'?" in refused_here(capsys, verb, "nighty")
    assert "runs holds several runs: name one of them, e.g. runs/nightly" in refused_here(capsys, verb, "runs")
    (here / "old").mkdir()
    assert "not the folder of a run" in refused_here(capsys, verb, "old")
    (here / "old" / "trace.jsonl").touch()
    assert "see `paceline summary runs/old`" in refused_here(capsys, verb, "old")
