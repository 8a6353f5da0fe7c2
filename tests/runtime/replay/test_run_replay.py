"""Recordings of real runs replay equal: each was a run that somebody had."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paceline.core.coordination.elasticity import Elasticity
from paceline.core.errors import ConfigError
from paceline.live.recording.message_text import json_of
from paceline.runtime.replay.party_recordings import is_party_recording
from paceline.runtime.replay.run_replay import coordinator_recording

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
KILLED = RECORDINGS / "worker-and-server-killed.jsonl"


OF_COORDINATORS = [path for path in sorted(RECORDINGS.glob("*.jsonl")) if not is_party_recording(path)]


@pytest.mark.parametrize("path", OF_COORDINATORS, ids=lambda path: path.stem)
def test_a_recorded_run_is_decided_as_it_was(path: Path) -> None:
    """If a decision has changed on purpose: `paceline replay FILE --write FILE`, and look at the diff."""
    replayed = list(coordinator_recording(path).replay())
    assert [one.recorded.number for one in replayed if not one.equal] == []
    assert len(replayed) > 100


def test_the_recording_has_a_worker_and_a_server_that_were_killed_and_came_back() -> None:
    events = Counter(
        (record["party"], record["event"])
        for one in coordinator_recording(KILLED).replay()
        for output in one.outputs
        for record in [output.get("WriteRecord", {}).get("record", {})]
        if record.get("kind") == "membership"
    )
    assert events["worker 1", "lost"] == events["worker 1", "returned"] == 1
    assert events["server 0", "lost"] == events["server 0", "replaced"] == 1


def test_what_is_rewritten_replays_equal_and_has_todays_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elasticity, "_enter", lambda self, who: None)
    recording = coordinator_recording(KILLED)
    (tmp_path / "x.jsonl").write_text("".join(f"{json_of(line)}\n" for line in recording.rewritten()))
    again = coordinator_recording(tmp_path / "x.jsonl")
    assert [one.what for one in again.inputs] == [one.what for one in recording.inputs]
    assert all(one.equal for one in again.replay())
    assert not all(one.equal for one in recording.replay())


def test_an_error_of_the_machine_is_the_difference_and_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Elasticity, "_evict", breaks)
    last = list(coordinator_recording(KILLED).replay())[-1]
    assert last.recorded.what[:2] == ["lost", "worker 1"]
    assert last.outputs[-1] == {"Raised": "ZeroDivisionError: planted"}


def test_where_there_is_no_recording_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="record the run with --record"):
        coordinator_recording(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"format": 99}\n')
    with pytest.raises(ConfigError, match="no recording of a coordinator"):
        coordinator_recording(tmp_path / "x.jsonl")
