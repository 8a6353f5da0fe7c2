"""Recorded inputs and decisions as people read them."""

from __future__ import annotations

from pathlib import Path

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import Timer
from paceline.live.recording.coordinator_replay import ReplayedInput
from paceline.live.recording.transcript import decided_lines, difference_lines, input_lines, is_routine
from tests.live.recording.scene import W0, W1, RecordedRun
from tests.live.scripted_parties import progress


def test_a_lost_worker_reads_as_a_story(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "c.jsonl.gz")
    run.bring_up()
    run.coordinator.lost(W1, "reset")
    last = run.inputs()[-1]
    last.at = 4.0
    lines = [*input_lines(last), *decided_lines(last.outputs)]
    assert lines[0] == "      9     4.000 s  worker 1 is lost (closed): reset"
    assert lines[1].strip() == "then at once: worker 1 is lost (closed): reset"
    assert "send server 0, worker 0: WorkerLeft rank=1 lost=True incarnation=0 view=0" in [
        line.strip() for line in lines
    ]


def test_reports_and_looks_at_the_clock_are_routine_and_what_changes_the_run_is_not(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "c.jsonl.gz")
    run.bring_up()
    before = len(run.wire.sent)
    run.say(W0, progress(8))
    run.say(W0, control.Beat())
    run.coordinator.timer_ran_out(Timer.MEMBERS, 0)
    run.say(W0, control.Left(reason="done"))
    run.coordinator.lost(W1, "reset")
    assert len(run.wire.sent) > before
    assert [is_routine(one) for one in run.inputs()[-5:]] == [True, True, True, False, False]


def test_a_difference_shows_what_was_decided_then_and_now(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "c.jsonl.gz")
    run.bring_up()
    run.coordinator.stop("enough")
    last = run.inputs()[-1]
    assert last.outputs is not None
    lines = list(difference_lines(ReplayedInput(last, last.outputs[:1])))
    assert lines[0].startswith(">")
    assert [line.split()[:3] for line in lines[1:]][-1] == ["-", "then", "send"]
    nothing = list(difference_lines(ReplayedInput(last, [])))
    assert nothing[-1].split() == ["+", "now", "nothing"]
