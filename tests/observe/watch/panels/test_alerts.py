"""What an operator is told, and how often."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil

from paceline.core.trace import Evaluated
from paceline.observe.watch.panels.alerts import HOLD_S, Alert, AlertWatch, CommandHook, fallen_throughput, stuck
from tests.launch.process_tree import within


def evaluations(*of: tuple[float, float]) -> list[Evaluated]:
    return [
        Evaluated(at=float(n), accuracy=accuracy, loss=loss, samples=n, seconds=0.0)
        for n, (accuracy, loss) in enumerate(of)
    ]


def test_an_alert_is_told_once_when_it_begins_and_once_when_it_is_over() -> None:
    told: list[tuple[str, float, bool]] = []
    watch = AlertWatch(lambda alert, begins: told.append((alert.text, alert.at, begins)))
    for now in range(20):
        watch.look(float(now), {"worker": f"{now}"} if 3 <= now < 12 else {})
    assert told == [(str(3 + int(HOLD_S)), 3.0, True), ("11", 3.0, False)]
    assert watch.active == {}


def test_what_is_short_or_interrupted_for_a_moment_is_not_told() -> None:
    told: list[bool] = []
    watch = AlertWatch(lambda _, begins: told.append(begins))
    watch.look(0.0, {"throughput": "x"})
    watch.look(HOLD_S - 1, {})
    watch.look(HOLD_S + 1, {"throughput": "x"})
    assert told == []
    watch.look(2 * HOLD_S + 2, {"throughput": "x"})
    watch.look(2 * HOLD_S + 3, {})
    watch.look(2 * HOLD_S + 4, {"throughput": "x"})
    assert told == [True], "it has been away for a second"


def test_a_loss_that_is_no_number_is_told_at_once() -> None:
    told: list[str] = []
    watch = AlertWatch(lambda alert, _: told.append(alert.kind))
    watch.look(1.0, {"loss": "NaN"})
    assert list(watch.active) == told == ["loss"]


def test_throughput_that_has_fallen_is_told_with_what_it_was() -> None:
    assert fallen_throughput([1000.0] * 40 + [300.0] * 10, 1.0) == (
        "Throughput has fallen to 300 samples/s; it was 1,000."
    )
    assert fallen_throughput([1000.0] * 40 + [600.0] * 10, 1.0) == ""
    assert fallen_throughput([1000.0] * 5 + [300.0] * 10, 1.0) == "", "too little is known of before"
    assert fallen_throughput([], 1.0) == fallen_throughput([1.0], 0.0) == ""


def test_a_loss_that_does_not_fall_is_told_unless_the_accuracy_rises() -> None:
    flat = [(0.5, 1.0)] * 6
    assert stuck(evaluations(*flat, *flat)).startswith(
        "The model has not become better since 6 s: its lowest loss is 1"
    )
    assert stuck(evaluations(*flat, *[(0.5, 0.9)] * 6)) == ""
    assert stuck(evaluations(*flat, *[(0.6, 1.0)] * 6)) == ""
    assert stuck(evaluations(*flat)) == "", "too few"
    assert stuck(evaluations(*[(1.0, 0.001)] * 20)) == "", "there is nothing to be better at"
    assert stuck(evaluations(*[(0.5, float("nan"))] * 20)) == "", "another alert says so"


def test_the_hook_gets_the_text_and_all_of_it_as_json(tmp_path: Path) -> None:
    script = (
        "import json, os, pathlib, sys; told, again = json.loads(os.environ['PACELINE_ALERT']), sys.stdin.read(); "
        f"pathlib.Path({str(tmp_path / 'said')!r}).write_text(json.dumps([sys.argv[1], told, again]))"
    )
    failed: list[str] = []
    hook = CommandHook([sys.executable, "-c", script], lambda: "runs/a", failed.append)
    alert = Alert(kind="worker", text="Worker 3 & $(its) friends", at=3.0)
    hook.call(alert, begins=True)
    text, told, line = json.loads((tmp_path / "said").read_text())
    assert line == json.dumps(told) + "\n"
    assert text == alert.text
    assert told == {"kind": "worker", "text": alert.text, "state": "begins", "run": "runs/a", "seconds": 3.0}
    hook.call(alert, begins=False)
    assert json.loads((tmp_path / "said").read_text())[0] == f"over: {alert.text}"
    assert failed == []


def test_a_hook_that_fails_says_so_in_a_line() -> None:
    failed: list[str] = []
    alert = Alert(kind="worker", text="x", at=0.0)
    CommandHook([sys.executable, "-c", "import sys; sys.exit('no display')"], str, failed.append).call(
        alert, begins=True
    )
    CommandHook(["/nowhere/at/all"], str, failed.append).call(alert, begins=True)
    assert failed[0] == f"--alert-hook {sys.executable}: exit code 1: no display"
    assert failed[1].startswith("--alert-hook /nowhere/at/all: ")


def test_a_hook_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    failed: list[str] = []
    script = 'sleep 600 & echo $! > "$0"; wait'  # a shell, as Python may take longer to start
    hook = CommandHook(["sh", "-c", script, str(tmp_path / "child")], str, failed.append, seconds_max=3.0)
    hook.call(Alert(kind="worker", text="x", at=0.0), begins=True)
    assert failed == ["--alert-hook sh: was ended after 3 s"]
    assert within(60, lambda: _is_over(int((tmp_path / "child").read_text())))


def _is_over(pid: int) -> bool:
    """Returns True once that process has ended; who should reap it may not have done so yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_hook_that_does_not_read_is_no_failure() -> None:
    failed: list[str] = []
    CommandHook(["true"], str, failed.append).call(Alert(kind="worker", text="x" * 100_000, at=0.0), begins=True)
    assert failed == []
