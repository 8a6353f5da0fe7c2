"""`paceline status`, `kill` and `logs`: they see the run they are given, and nobody else."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from paceline.cli.commands import status
from paceline.cli.main import main
from paceline.cli.support.run_and_report import _signals, ending_in_order
from paceline.core.trace import Evaluated
from paceline.live.party import EVALUATOR
from paceline.live.protocol.control_messages import Hello
from paceline.runtime.run_folder.evaluation_times import EvaluationTimes
from paceline.runtime.run_folder.status_file import STATUS, StatusFile, read_status
from tests.cli.conftest import refused_here
from tests.launch.process_tree import all_gone, descendants, within

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


def train(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "paceline", "train", "--scheme", "asp", "--workers", "2", "--step-ms", "5"]
    return subprocess.Popen(
        [*command, "--epochs", "0", "--seconds", "600", "--out", str(folder), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def trains(folder: Path) -> bool:
    return (folder / STATUS).exists() and any(p.steps for p in read_status(folder).parties)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def told(capsys: Capture, *words: str, code: int = 0) -> str:
    """What it prints: on stdout when all is well, or else the one line on stderr."""
    assert main(words) == code
    out, err = capsys.readouterr()
    return (out if code == 0 or not err else err).strip()


def a_status(folder: Path, **changes: object) -> None:
    """Of a run that this process leads, but for `changes`."""
    folder.mkdir(exist_ok=True)
    StatusFile(folder, "bsp").write("training")
    status = msgspec.structs.replace(read_status(folder), **changes)
    (folder / STATUS).write_bytes(msgspec.json.encode(status))


def test_a_run_is_seen_heard_and_ended_in_order_with_all_its_processes(here: Path, capsys: Capture) -> None:
    one = train(here / "one", "-v")
    try:
        assert within(120, lambda: trains(here / "one"))
        seen = json.loads(told(capsys, "status", "one", "--json"))
        assert (seen["now"], seen["pid"], seen["scheme"]) == ("training", one.pid, "asp")
        family = descendants(one.pid)
        assert {p["pid"] for p in seen["parties"]} <= set(family)
        assert [p["party"] for p in seen["parties"]] == ["evaluator", "server 0", "worker 0", "worker 1"]
        assert "worker 1   joined" in told(capsys, "status", "one")
        assert "[worker 0] " in told(capsys, "logs", "one", "--party", "worker-0")

        assert told(capsys, "kill", "one") == "runs/one has ended: interrupted by SIGTERM"
        assert one.wait(10) == 143
        assert all_gone(family)
        assert json.loads((here / "one" / "summary.json").read_text())["reason"] == "interrupted by SIGTERM"
        assert "over " in told(capsys, "status", "one")
        assert "has ended already: over, interrupted by SIGTERM" in refused_here(capsys, "kill", "one")
    finally:
        one.kill()
        one.wait()


STUBBORN = """
import signal, sys, threading
from pathlib import Path
from paceline.runtime.run_folder.status_file import StatusFile
signal.signal(signal.SIGTERM, lambda *_: None)
Path(sys.argv[1]).mkdir()
StatusFile(Path(sys.argv[1]), "bsp").write("training")
while True:
    threading.Event().wait(60)
"""


def test_one_that_does_not_end_is_told_so_and_ends_by_force_and_nobody_else_does(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.cli.commands.kill.SECONDS", 0.1)
    monkeypatch.setattr("paceline.cli.commands.kill.FORCED_SECONDS", 0.1)
    two = [subprocess.Popen([sys.executable, "-c", STUBBORN, str(here / name)]) for name in ("one", "other")]
    try:
        assert within(60, lambda: all((here / name / STATUS).exists() for name in ("one", "other")))
        assert "still ending; once more ends it at once" in told(capsys, "kill", "one", code=1)
        assert told(capsys, "kill", "one", "--force") == "runs/one has ended: at once"
        assert two[0].wait(10) == -signal.SIGKILL
        assert "gone: process" in told(capsys, "status", "one", code=1)
        assert two[1].poll() is None
    finally:
        for process in two:
            process.kill()
            process.wait()


STARTS = """
import sys, threading
from paceline.cli.support.run_and_report import _signals, ending_in_order
from paceline.runtime.run_folder.status_file import starting
with ending_in_order(), starting(sys.argv[1], "bsp"):
    threading.Event().wait(60)
"""


def test_a_run_that_has_not_begun_is_ended_and_leaves_nothing(here: Path, capsys: Capture) -> None:
    one = subprocess.Popen([sys.executable, "-c", STARTS, str(here / "one")])
    try:
        assert within(60, lambda: (here / "one" / STATUS).exists())
        assert told(capsys, "kill", "one") == "runs/one has ended: before it began"
        assert one.wait(10) == 143
        assert not (here / "one").exists()
    finally:
        one.kill()
        one.wait()


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


@pytest.mark.parametrize("verb", ["status", "kill", "logs"])
def test_a_wrong_name_is_told_with_the_way_out(verb: str, here: Path, capsys: Capture) -> None:
    a_status(here / "nightly")
    assert "did you mean 'nightly'?" in refused_here(capsys, verb, "nighty")
    assert "runs holds several runs: name one of them, e.g. runs/nightly" in refused_here(capsys, verb, "runs")
    (here / "old").mkdir()
    assert "not the folder of a run" in refused_here(capsys, verb, "old")
    (here / "old" / "trace.jsonl").touch()
    assert "see `paceline summary runs/old`" in refused_here(capsys, verb, "old")


def test_a_run_whose_process_was_killed_is_gone_and_its_number_is_nobody_elses(here: Path, capsys: Capture) -> None:
    a_status(here / "a", born="another boot 1", listens=True)
    assert "gone: process" in told(capsys, "status", "a", code=1)
    assert "is gone already" in refused_here(capsys, "kill", "a")


def test_nobody_is_ended_by_a_copy_from_elsewhere_or_within_a_program_that_does_not_listen(
    here: Path, capsys: Capture
) -> None:
    a_status(here / "a", listens=True)
    shutil.copytree(here / "a", here / "b")
    assert "runs/b is a copy of" in refused_here(capsys, "kill", "b")
    a_status(here / "c", listens=True, host="another")
    assert "run `paceline kill` there" in refused_here(capsys, "kill", "c")
    assert "led from another" in told(capsys, "status", "c")
    a_status(here / "d", listens=False)
    assert "part of a program" in refused_here(capsys, "kill", "d")


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


def test_status_says_what_a_silent_evaluator_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    standing = StatusFile(tmp_path, "bsp", evaluations=EvaluationTimes(60.0, to_target=False))
    standing.joined(EVALUATOR, Hello(address="a", pid=1, host="h", device=""))

    def line(at: float) -> str:
        nonlocal now
        now = at
        standing.write("training", at_once=True)
        return status.text(tmp_path, read_status(tmp_path), 0.0)[-1]

    assert line(1000.0) == "the evaluator judges the first model, for 0.00 s"
    now = 1004.0
    standing.recorded(Evaluated(at=4.0, accuracy=0.5, loss=1.0, samples=10, seconds=2.0))
    waits, last = "the evaluator waits for the next evaluation, in 18.0 s", "accuracy 0.500"
    assert line(1044.0) == f"{waits}; the last was 40.0 s ago: {last}"
    assert line(1064.0) == f"the evaluator is judging since about 2.0 s; the last was 60.0 s ago: {last}"
    standing.write("over", at_once=True)
    assert not any(line.startswith("the ") for line in status.text(tmp_path, read_status(tmp_path), 0.0))
