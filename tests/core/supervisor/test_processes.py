"""Which process runs, and what the user reads of those that are refused. The rest is in
`tests/runtime/supervisor/test_incarnations.py`, which drives the same machine."""

from __future__ import annotations

from paceline.core.coordination.party import EVALUATOR, Party, server, worker
from paceline.core.supervisor.processes import KillIncarnation, ProcessSupervision, ShowLine, StartIncarnation

WHY = "the other side speaks protocol version 3, this side 2: install one version of paceline on all hosts"


def begun(restarts: int = 1) -> ProcessSupervision:
    machine = ProcessSupervision(restarts)
    machine.begin([server(0), worker(0), worker(1), EVALUATOR], [worker(1)])
    return machine


def refused(machine: ProcessSupervision, who: Party, now: float) -> list[object]:
    machine.has_ended(who)
    machine.refused(who, WHY)
    assert not machine.hopeless(who, trains=True)
    return list(machine.ended(now, who, trains=True, banned=()))


def test_all_but_those_that_come_late_are_started_and_a_newcomer_when_somebody_asks() -> None:
    machine = ProcessSupervision(1)
    started = machine.begin([server(0), worker(0), worker(1)], [worker(1)])
    assert started == [StartIncarnation(server(0), 0), StartIncarnation(worker(0), 0)]
    assert machine.next(worker(1)) == StartIncarnation(worker(1), 1)
    assert machine.up == {server(0), worker(0), worker(1)}


def test_a_refused_worker_is_said_once_and_enters_by_the_first_process_of_the_right_version() -> None:
    machine, now = begun(), 100.0
    machine.has_ended(worker(0))
    assert machine.ended(now, worker(0), trains=True, banned=()) == []
    assert machine.due(now, trains=True, needs_evaluator=True) == [StartIncarnation(worker(0), 1)]
    said = []
    for incarnation in range(2, 6):
        said += refused(machine, worker(0), now)
        assert machine.due(now, trains=True, needs_evaluator=True) == []
        now += 30.0
        assert machine.due(now, trains=True, needs_evaluator=True) == [StartIncarnation(worker(0), incarnation)]
    assert said == [ShowLine(f"{WHY}; it is tried again, after pauses of up to 30 s")]
    assert machine.refusal_of(worker(0)) == WHY
    machine.joined(worker(0), 5)
    assert machine.refusal_of(worker(0)) == ""


def test_where_nobody_is_started_again_one_line_says_why_it_stays_away() -> None:
    machine = begun(restarts=0)
    assert refused(machine, worker(0), 0.0) == [ShowLine(f"{WHY}; worker 0 is not started again: --restarts 0")]
    assert machine.due(100.0, trains=True, needs_evaluator=True) == []
    assert machine.given_up == {worker(0)}
    machine.next(worker(0))  # somebody asks for it after all
    assert machine.given_up == set()


def test_a_refused_server_is_tried_after_pauses_and_one_that_joins_ends_that() -> None:
    machine, now = begun(), 0.0
    machine.has_ended(server(0))
    assert machine.ended(now, server(0), trains=True, banned=()) == []
    assert machine.lost(server(0), 0) == [KillIncarnation(server(0)), StartIncarnation(server(0), 1)]
    assert refused(machine, server(0), now) == [ShowLine(f"{WHY}; it is tried again, after pauses of up to 8 s")]
    assert machine.next_due() == 1.0
    assert machine.due(0.9, trains=True, needs_evaluator=True) == []
    assert machine.due(1.0, trains=True, needs_evaluator=True) == [StartIncarnation(server(0), 2)]
    assert refused(machine, server(0), now) == []
    assert machine.due(3.0, trains=True, needs_evaluator=True) == [StartIncarnation(server(0), 3)]
    machine.joined(server(0), 3)
    assert refused(machine, server(0), now) != [], "a later upgrade is said again"


def test_an_evaluator_that_is_refused_when_nobody_trains_ends_the_run_after_its_last_restarts() -> None:
    machine = begun()
    for _ in range(2):
        machine.has_ended(EVALUATOR)
        machine.refused(EVALUATOR, WHY)
        assert not machine.hopeless(EVALUATOR, trains=False)
        assert machine.ended(0.0, EVALUATOR, trains=False, banned=()) == []
        [started] = machine.due(0.0, trains=False, needs_evaluator=True)
        assert isinstance(started, StartIncarnation)
    assert not started.judges, "the last one only saves"
    assert machine.hopeless(EVALUATOR, trains=False)
