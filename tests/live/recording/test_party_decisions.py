"""What the machines of a party decide is recorded, and their answers stay the same."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import worker
from paceline.core.parties.known_workers import KnownWorkers
from paceline.core.parties.orders import PartyOrders, RefuseIncarnation, RolesHearLeft
from paceline.live.recording.party_decisions import PartyDecisionRecorder, decisions_path
from paceline.live.recording.recording_file import FOLDER, read_recording

LOST = control.WorkerLeft(rank=1, lost=True, incarnation=0)


def recorder(tmp_path: Path, bytes_max: int = 1 << 20) -> PartyDecisionRecorder:
    (tmp_path / FOLDER).mkdir(exist_ok=True)
    return PartyDecisionRecorder(tmp_path, worker(0), 2, bytes_max)


def test_questions_and_decisions_are_pairs(tmp_path: Path) -> None:
    observer = recorder(tmp_path)
    orders = observer.observe("orders", PartyOrders(worker(0), KnownWorkers(worker(0))))
    assert orders.told(LOST) == [RefuseIncarnation(1, 0), RolesHearLeft(1)]
    observer.close()
    header, asked, decided = read_recording(decisions_path(tmp_path, worker(0), 2))
    assert header == {"format": 1, "party": "worker 0", "incarnation": 2}
    assert (asked[0], asked[2], asked[4]) == ("in", "orders.told", {})
    assert asked[3][0]["control.WorkerLeft"]["rank"] == 1
    assert decided == ["out", [{"RefuseIncarnation": {"rank": 1, "incarnation": 0}}, {"RolesHearLeft": {"rank": 1}}]]


def test_an_error_of_a_machine_is_recorded_and_raised(tmp_path: Path) -> None:
    class Broken:
        def told(self, message: object, *, late: bool) -> None:
            raise ZeroDivisionError("planted")

    observer = recorder(tmp_path)
    with pytest.raises(ZeroDivisionError):
        observer.observe("broken", Broken()).told(LOST, late=True)
    observer.close()
    _, asked, decided = read_recording(decisions_path(tmp_path, worker(0), 2))
    assert asked[4] == {"late": True}
    assert decided == ["out", [{"Raised": "ZeroDivisionError: planted"}]]


def test_questions_of_several_threads_come_one_after_the_other(tmp_path: Path) -> None:
    observer = recorder(tmp_path)
    orders = observer.observe("orders", PartyOrders(worker(0), KnownWorkers(worker(0))))
    threads = [threading.Thread(target=lambda: [orders.told(LOST) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    observer.close()
    _, *lines = read_recording(decisions_path(tmp_path, worker(0), 2))
    assert [line[0] for line in lines] == ["in", "out"] * 400


def test_where_the_folder_of_the_run_is_not_there_the_machine_itself_is_used(tmp_path: Path) -> None:
    machine = object()
    assert PartyDecisionRecorder(tmp_path, worker(0), 0, 1 << 20).observe("orders", machine) is machine


def test_a_full_recording_ends_and_the_machine_goes_on(tmp_path: Path) -> None:
    observer = recorder(tmp_path, 500)
    orders = observer.observe("orders", PartyOrders(worker(0), KnownWorkers(worker(0))))
    for _ in range(200):
        assert orders.told(LOST)
    observer.close()
    assert list(read_recording(decisions_path(tmp_path, worker(0), 2)))[-1] == ["full"]
