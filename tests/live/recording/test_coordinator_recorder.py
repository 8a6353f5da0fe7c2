"""What a recorder writes down, and what it does to the run that it records: nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.trace import Applied, to_row
from paceline.live.protocol.transport import Kind
from paceline.live.recording.recording_file import read_recording
from tests.live.recording.scene import S0, W0, Count, RecordedRun


def lines_of(run: RecordedRun) -> list[Any]:
    run.recorder.close()
    return list(read_recording(run.path))


def test_each_input_is_followed_by_what_was_decided(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "c.jsonl.gz")
    run.bring_up()
    header, *lines = lines_of(run)
    assert header == {"format": 1, "party": "coordinator"}
    assert [line[0] for line in lines] == ["in", "out"] * 8
    assert lines[0][2:4] == ["message", "server 0"]
    assert lines[-1][1][0] == {"StartTraining": {"role": "Tally", "not_started": []}}


def test_a_line_is_in_the_file_before_the_input_is_handled(tmp_path: Path) -> None:
    """So that it is there when handling it ends the process."""
    run = RecordedRun(tmp_path / "c.jsonl.gz")
    run.bring_up()
    seen: list[Any] = []
    run.wire.send = lambda to, envelope: seen.extend(read_recording(run.path))
    run.coordinator.stop("enough")
    assert seen[-1][2:] == ["stop", "enough"]


def test_the_clock_stands_still_within_an_input_for_its_own_thread_alone(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "c.jsonl.gz")
    assert run.recorder.clock() == 0.0, "the node is made now, and its time is counted from here in a replay as well"
    run.bring_up()
    clock, here, elsewhere = run.recorder.clock, [], []

    def look(to: Any, envelope: Any) -> None:
        here.extend([clock(), clock()])
        thread = threading.Thread(target=lambda: elsewhere.append(clock()))
        thread.start()
        thread.join()

    run.wire.send = look
    run.say(W0, Count(n=1), Kind.CALL, 5)
    assert here[0] == here[1] < elsewhere[0]
    assert clock() < clock()


def test_whether_a_snapshot_is_available_does_not_change_within_an_input(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "c.jsonl.gz")
    run.bring_up()
    snapshots, seen = run.recorder.snapshots(run.keeping), []

    def look(to: Any, envelope: Any) -> None:
        run.keeping.available = True
        seen.append(snapshots.available)

    run.wire.send = look
    run.say(W0, Count(n=1), Kind.CALL, 5)
    run.say(W0, Count(n=1), Kind.CALL, 6)
    assert seen == [False, True]
    assert ["kept", True] in lines_of(run)
    assert snapshots.available, "outside of an input it is as it is"


def test_records_of_a_message_are_written_down_once(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "c.jsonl.gz")
    run.bring_up()
    applied = Applied(at=1.0, shard=0, ranks=(0,), version=7, staleness=0, weight=1.0, samples=8)
    row = json.dumps(to_row(applied))
    run.say(S0, control.Records(lines=f"{row}\n{row}"))
    _, [output] = lines_of(run)[-1]
    assert output == {"WriteRecords": {"number": 2}}
    assert run.told.records[-2:] == [applied, applied]


def test_what_the_coordinator_does_is_what_it_does_without_a_recorder(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path / "c.jsonl.gz", bytes_max=1)
    run.bring_up()
    assert run.keeping.told == ["begin"]
    assert [type(envelope.message).__name__ for _, envelope in run.wire.sent][-3:] == ["Go", "Go", "Go"]
    assert lines_of(run)[-1] == ["full"]
