"""Decisions of workers and servers of real runs replay equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import worker
from paceline.core.errors import ConfigError
from paceline.core.parties.known_workers import KnownWorkers
from paceline.core.parties.orders import PartyOrders
from paceline.core.parties.server_restore import ServerRestore
from paceline.live.recording.party_decisions import PartyDecisionRecorder
from paceline.live.recording.recording_file import FOLDER
from paceline.runtime.replay.party_recordings import is_party_recording, party_recordings

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
RESTORED = RECORDINGS / "restored-server.decisions.jsonl"


def test_a_server_that_came_back_is_decided_as_it_was() -> None:
    """It was killed, and its next incarnation restored from a copy. If a decision has changed on purpose, record such a
    run again: tests/runtime/runs/test_lost_servers.py makes them."""
    (recording,) = party_recordings(RESTORED)
    assert (str(recording.who), recording.incarnation) == ("server 1", 1)
    replayed = list(recording.replay())
    assert [one.recorded.what for one in replayed if not one.equal] == []
    questions = [one.recorded.what[0] for one in replayed]
    assert {"lifecycle.told", "restore.fetched", "restore.became", "orders.told"} <= set(questions)


def test_a_planted_bug_in_the_machine_of_a_server_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerRestore, "fetched", lambda self, order, complete: [])
    (recording,) = party_recordings(RESTORED)
    assert [one.recorded.what[0] for one in recording.replay() if not one.equal] == ["restore.fetched"]


def test_all_parties_of_a_run_are_found(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    for rank, incarnation in ((1, 0), (0, 0), (0, 2)):
        observer = PartyDecisionRecorder(tmp_path, worker(rank), incarnation, 1 << 20)
        orders = observer.observe("orders", PartyOrders(worker(rank), KnownWorkers(worker(rank))))
        orders.told(control.WorkerLeft(rank=3))
        observer.close()
    found = party_recordings(tmp_path)
    assert [one.title for one in found] == ["worker 0", "worker 0, incarnation 2", "worker 1"]
    assert all(len(one.inputs) == 1 for one in found)
    assert is_party_recording(found[0].path)
    assert not is_party_recording(tmp_path / "coordinator.jsonl.gz")


def test_what_is_no_recording_of_a_party_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.decisions.jsonl").write_text('{"format": 99}\n')
    with pytest.raises(ConfigError, match="no recording of a worker"):
        party_recordings(tmp_path / "x.decisions.jsonl")
