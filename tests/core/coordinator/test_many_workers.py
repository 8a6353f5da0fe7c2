"""The coordinator of ten thousand workers: messages fit in frames, and a report costs what it costs among ten.

Its own code decides, and nothing else of a run is there.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import Action, SendMessage
from paceline.core.coordination.party import EVALUATOR, Party, worker
from paceline.core.coordinator.bring_up import PlanRequest
from paceline.core.sharding import Layout
from paceline.live.numpy_memory import PlainMemory
from paceline.live.protocol.frames import HEADER_BYTES_MAX, encode
from paceline.live.protocol.message_parts import parts_of
from paceline.live.protocol.transport import Envelope, Kind
from tests.core.coordinator.test_machine import READY, S0, Driver, Planner

MANY = 10_000
HOST = "a-host-with-a-name-that-is-as-long-as-those-of-some-clouds.internal.example"


class PlannerOfMany(Planner):
    """Plans with everything that has an entry a worker."""

    def plan(self, request: PlanRequest) -> control.Plan:
        n = len(request.workers)
        return control.Plan(
            workers=n,
            servers=1,
            length=8,
            layout=Layout((0, 8), (0,)),
            seconds_per_step=(0.125,) * n,
            optimizer="sgd",
            devices=("cuda:0",) * n,
            hosts=(HOST,) * n,
        )


def hello(who: Party, incarnation: int = 0) -> control.Hello:
    address = f"{HOST}:{10_000 + who.index}"
    return control.Hello(address=address, pid=1, host=f"{who.index}.{HOST}", device="cuda:0", incarnation=incarnation)


def brought_up(workers: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Driver, list[Action]]:
    """Returns a run that trains, and all that its coordinator did until then."""
    monkeypatch.setattr("tests.core.coordinator.test_machine.Planner", PlannerOfMany)
    driver, actions = Driver(workers), list[Action]()
    everybody = driver.machine.run.roster.beginning
    for who in (*everybody, S0, EVALUATOR):
        actions += driver.told(who, hello(who))
    for who in everybody:
        actions += driver.told(who, READY)
    for who in (S0, *everybody):
        actions += driver.told(who, control.Prepared())
    assert driver.machine.run.state.training
    return driver, actions


def largest_headers(actions: list[Action]) -> dict[str, int]:
    """Returns by class the bytes of the largest header among the frames of these messages."""
    largest: dict[str, int] = {}
    for action in actions:
        if isinstance(action, SendMessage):
            for part in parts_of(action.message):
                frame = encode(Envelope(Kind.CONTROL, part), PlainMemory())[0]
                name = type(part).__name__
                largest[name] = max(largest.get(name, 0), len(frame))
    return largest


def progress(steps: int) -> control.Progress:
    return control.Progress(
        steps=steps,
        samples=steps,
        exchanges=steps,
        seconds_computing=1.0,
        seconds_waiting=0.0,
        seconds_communicating=0.0,
        bytes_up=0,
        bytes_down=0,
    )


def test_no_message_to_one_of_many_workers_is_longer_than_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Hello to training, through a lost worker, one that comes back, and one that leaves."""
    driver, actions = brought_up(MANY, monkeypatch)
    driver.machine.lost(worker(7), "it was killed")
    actions += driver.taken()
    actions += driver.told(worker(7), hello(worker(7), 1))
    actions += driver.told(worker(7), READY)
    actions += driver.told(worker(9), control.Left(reason="epochs"))
    driver.machine.stop("samples")
    actions += driver.taken()
    largest = largest_headers(actions)
    assert {"Roster", "Plan", "Go", "WorkerLeft", "WorkerJoined", "Stop"} <= largest.keys()
    assert {name: size for name, size in largest.items() if size > HEADER_BYTES_MAX / 2} == {}
    grown = {name for name, size in largest.items() if size > 1000}
    assert grown <= {"Roster", "Plan"}, "only what is cut into parts may grow with the workers"


def calls(driver: Driver, who: Party, message: Any) -> int:
    """Returns how many functions the coordinator calls for a message, generators and built-in functions included."""
    count = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        driver.told(who, message)
    finally:
        sys.setprofile(before)
    return count


def test_a_report_takes_as_many_calls_among_many_workers_as_among_few(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (brought_up(workers, monkeypatch)[0] for workers in (10, 2000))
    for driver in (few, many):
        for who in driver.machine.run.roster.beginning:
            driver.told(who, progress(1))
    for message in (progress(2), control.Beat(), control.Aware(view=0)):
        assert calls(many, worker(5), message) == calls(few, worker(5), message), type(message).__name__
