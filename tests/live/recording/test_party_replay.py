"""The machines of a party, asked what they were asked in a recorded run."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import server, worker
from paceline.core.errors import ConfigError
from paceline.core.parties.known_workers import KnownWorkers
from paceline.core.parties.lifecycle import PartyLifecycle
from paceline.core.parties.orders import PartyOrders
from paceline.core.parties.server_restore import ServerRestore
from paceline.live.recording.coordinator_replay import RecordedInput, inputs_of
from paceline.live.recording.party_decisions import PartyDecisionRecorder, decisions_path
from paceline.live.recording.party_replay import PartyReplay
from paceline.live.recording.recording_file import FOLDER, read_recording


def recorded(tmp_path: Path) -> list[RecordedInput]:
    """A server that is told of a loss, restored from a copy, and at the end of the run."""
    (tmp_path / FOLDER).mkdir()
    observer, known = PartyDecisionRecorder(tmp_path, server(1), 1, 1 << 20), KnownWorkers(server(1))
    orders = observer.observe("orders", PartyOrders(server(1), known))
    lifecycle = observer.observe("lifecycle", PartyLifecycle(server(1), known))
    restore = observer.observe("restore", ServerRestore(later=True))
    lifecycle.told(control.Roster(addresses={}, hosts={}, incarnations=(0, 3), gone=(0,), lost=(0,)))
    order = control.Restore(number=4, source="server 0", server_view=2, departed=(0,))
    restore.ordered(order)
    restore.fetched(order, complete=True)
    restore.became(order, {0, 1}, before=7, version=7, done=((0, 0, 8),))
    orders.told(control.WorkerLeft(rank=1, lost=False, incarnation=3))
    lifecycle.saved()
    observer.close()
    _, *lines = read_recording(decisions_path(tmp_path, server(1), 1))
    return list(inputs_of(lines))


def test_a_recorded_party_is_decided_as_it_was(tmp_path: Path) -> None:
    machines = PartyReplay(server(1), 1)
    replayed = list(map(machines.take, recorded(tmp_path)))
    assert len(replayed) == 6
    assert all(one.equal and one.recorded.outputs for one in replayed)


def test_a_machine_that_decides_something_else_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = recorded(tmp_path)
    monkeypatch.setattr(KnownWorkers, "gone", lambda self, rank, lost: 1 / 0)
    replayed = list(map(PartyReplay(server(1), 1).take, inputs))
    assert [one.recorded.number for one in replayed if not one.equal] == [5]
    assert replayed[4].outputs == [{"Raised": "ZeroDivisionError: division by zero"}]
    # Another incarnation has to meet the others, who do not know it.
    assert [one.equal for one in map(PartyReplay(server(1), 0).take, inputs)].count(False) == 2


@pytest.mark.parametrize("what", [["orders.sing", [], {}], ["stars.told", [], {}], ["orders.told"]])
def test_a_question_that_this_version_does_not_know_is_refused(what: list[object]) -> None:
    with pytest.raises(ConfigError, match="no question that this version of Paceline knows"):
        PartyReplay(worker(0), 0).take(RecordedInput(1, 0.0, what, kept=False))
