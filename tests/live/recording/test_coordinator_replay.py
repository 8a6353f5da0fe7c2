"""A recorded coordinator is replayed: the same one decides the same, and another one is found."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import Timer
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.operator_orders import OperatorOrder
from paceline.core.errors import ConfigError, ProtocolError
from paceline.core.fault_tolerance.membership import Membership
from paceline.live.protocol.transport import Kind
from paceline.live.recording.coordinator_replay import ReplayedInput, inputs_of
from tests.live.recording.scene import S0, W0, W1, Count, RecordedRun, replay
from tests.live.scripted_parties import progress


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    run = RecordedRun(tmp_path / "coordinator.jsonl.gz")
    run.bring_up()
    return run


def replayed(run: RecordedRun) -> list[ReplayedInput]:
    machine = replay()
    return [machine.take(recorded) for recorded in run.inputs()]


def differing(run: RecordedRun) -> list[ReplayedInput]:
    return [one for one in replayed(run) if not one.equal]


def a_run_with_a_lost_worker(run: RecordedRun) -> None:
    """A question for the role, a lost worker and its next incarnation, a message that breaks the rules."""
    run.say(W0, progress(8))
    run.say(W0, Count(n=3), Kind.CALL, 5)
    run.coordinator.timer_ran_out(Timer.MEMBERS, 0)
    run.keeping.available = True
    run.coordinator.lost(W1, "reset")
    run.coordinator.ended(W1, "killed by SIGKILL")
    run.coordinator.order_now(OperatorOrder(kind="learning-rate", factor=0.5))
    run.coordinator.order_now(OperatorOrder(kind="grow"), "all places are taken")
    run.say(W1, control.Hello(address="hub:again", pid=2, host="here", device="cpu", incarnation=1))
    run.say(W0, control.EvaluationReport(at=1.0, samples=3, accuracy=0.5, loss=float("nan"), seconds=0.1))
    run.coordinator.stop("enough")


def test_the_same_inputs_give_the_same_decisions(run: RecordedRun) -> None:
    a_run_with_a_lost_worker(run)
    told = replayed(run)
    assert [one.recorded.number for one in told if not one.equal] == []
    outputs = [output for one in told for output in one.outputs]
    kinds = {next(iter(output)) for output in outputs}
    assert kinds >= {"StartTraining", "SendMessage", "WriteRecord", "Send", "CloseConnection", "NotifyWorkerLeft"}
    assert {
        "Send": {"to": "worker 0", "message": {"test_recording.Count": {"n": 3}, "kind": "REPLY", "id": 5}}
    } in outputs


def test_what_closing_a_connection_causes_at_once_is_replayed_within_that_decision(run: RecordedRun) -> None:
    run.coordinator.lost(W1, "reset")
    last = run.inputs()[-1]
    assert [what[:2] for what in last.nested] == [["lost", "worker 1"]]
    assert not differing(run)


def test_another_machine_is_found_at_the_first_decision_that_differs(
    run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run_with_a_lost_worker(run)
    recorded = run.inputs()
    right = Membership.lost

    def forgets(self: Any, now: float, who: Any, incarnation: int, reason: str) -> Any:
        return right(self, now, who, incarnation, "forgotten")

    monkeypatch.setattr(Membership, "lost", forgets)
    machine = replay()
    first = next(one for one in map(machine.take, recorded) if not one.equal)
    assert first.recorded.what[:2] == ["lost", "worker 1"]
    assert first.recorded.outputs != first.outputs


def test_time_is_that_of_the_inputs(run: RecordedRun) -> None:
    machine = replay()
    for recorded in run.inputs():
        recorded.at = 0.0
        machine.take(recorded)
    assert machine.coordinator.phase is RunPhase.TRAINING
    recorded.what, recorded.nested, recorded.outputs = ["timer", "MEMBERS", 0], [], None
    for looks in itertools.count(1):  # noqa: B007
        recorded.at += 0.25
        lost = [
            out for out in machine.take(recorded).outputs if out.get("WriteRecord", {}).get("record", {}).get("event")
        ]
        if lost:
            break
    assert looks == 21, "dead_after_s is 5"
    assert "silent for 5.2 s" in lost[0]["WriteRecord"]["record"]["reason"]


def test_an_error_of_the_machine_is_an_output(run: RecordedRun) -> None:
    with pytest.raises(ProtocolError):
        run.say(S0, control.Hello(address="hub:again", pid=2, host="here", device="cpu"))
    last = replayed(run)[-1]
    assert last.equal
    assert last.outputs[-1]["Raised"].startswith("ProtocolError: server 0 says hello")


def test_where_the_recording_ends_in_an_input_nothing_is_compared(run: RecordedRun) -> None:
    recorded = run.inputs()
    recorded[-1].outputs = None
    machine = replay()
    assert all(machine.take(one).equal for one in recorded)


@pytest.mark.parametrize("line", [["on", 1.0, "stop"], {"in": 3}, ["out", []], ["nested", 1.0, "lost"], 5])
def test_a_line_that_is_none_is_refused(line: Any) -> None:
    with pytest.raises(ConfigError, match="does not know"):
        list(inputs_of([line]))


@pytest.mark.parametrize("what", [["sleep"], ["message", "worker 0"], ["timer", 3, 0], []])
def test_an_input_that_is_none_is_refused(what: list[Any], run: RecordedRun) -> None:
    recorded = run.inputs()[0]
    recorded.what = what
    with pytest.raises(ConfigError, match="no input"):
        replay().take(recorded)
