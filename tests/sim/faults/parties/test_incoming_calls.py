"""How simulated processes take, know again and decline the calls of others, where messages may be lost."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.coordination.party import Party, server, worker
from paceline.core.parties.incoming_calls import IncomingCalls
from paceline.sim.faults.coordination.members import Members
from paceline.sim.faults.parties.incoming_calls import SimulatedIncomingCalls
from paceline.sim.kernel.processes import SimulatedProcess
from paceline.sim.messaging import Messaging
from tests.sim.faults.faulty import with_fault


class Process:
    """One role of a process."""

    def __init__(self, who: Party) -> None:
        self.name, self.who, self.me, self.process = str(who), who, who.index, (str(who), 0)


def process(who: Party) -> Any:
    return Process(who)


class Stage:
    """Keeps what is sent, and which calls fail."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any, tuple[Any, ...]]] = []
        self.failed: list[tuple[Any, str]] = []
        self.streams = self.calls = self
        self.incoming = SimulatedIncomingCalls(self, self)  # type: ignore[arg-type]

    def send(self, src: Any, dst: Any, nbytes: int, act: Any, args: Any, *, past_role: bool) -> None:
        assert past_role, "no role hears it, so nobody waits until it is taken"
        self.sent.append((src.name, dst.name, act, args))

    def has_no_answer(self, call: Any, by: Any) -> None:
        self.failed.append((call, by.name))


def call_of(rank: int, number: int, to: Any) -> Any:
    caller = SimpleNamespace(rank=rank, party=process(worker(rank)))
    return SimpleNamespace(incarnation=caller, numbers={to.me: SimpleNamespace(number=number)})


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_call_that_is_sent_again_is_known_by_its_number_also_when_it_is_answered(stage: Stage) -> None:
    s0 = process(server(0))
    call = call_of(1, 5, s0)
    assert not stage.incoming.had(s0, call)
    assert stage.incoming.takes(s0, call)
    assert stage.incoming.had(s0, call)
    assert stage.incoming.of(s0).oldest(s0, 1, "answer") is call
    assert stage.incoming.had(s0, call)
    assert not stage.incoming.had(s0, call_of(1, 6, s0))


def test_the_roles_of_a_process_share_a_table_and_their_calls_wait_apart(stage: Stage) -> None:
    s0, means = process(server(0)), process(server(0))
    push, part = call_of(1, 1, s0), call_of(1, 2, means)
    assert stage.incoming.takes(s0, push)
    assert stage.incoming.takes(means, part)
    assert stage.incoming.of(s0) is stage.incoming.of(means)
    assert stage.incoming.of(means).oldest(means, 1, "mean") is part


def test_a_leaver_declines_every_call_that_waits_at_it_by_a_message_and_what_comes_later(stage: Stage) -> None:
    leaver = process(worker(0))
    first, second, other = call_of(1, 1, leaver), call_of(1, 2, leaver), call_of(2, 1, leaver)
    for call in (first, second, other):
        assert stage.incoming.takes(leaver, call)
    stage.incoming.leaves(leaver)
    late = call_of(3, 1, leaver)
    assert not stage.incoming.takes(leaver, late)
    assert [(src, dst) for src, dst, _, _ in stage.sent] == [
        ("worker 0", "worker 1"),
        ("worker 0", "worker 1"),
        ("worker 0", "worker 2"),
        ("worker 0", "worker 3"),
    ]
    assert stage.failed == [], "the callers hear it when it arrives"
    for _, _, act, args in stage.sent:
        act(*args)
    assert stage.failed == [(call, "worker 0") for call in (first, second, other, late)]


@pytest.mark.parametrize("scheme", ["ssp", "bsp", "easgd"])
@pytest.mark.parametrize("kind", ["crash", "leave"])
def test_without_hazards_the_list_of_open_calls_holds_what_the_machine_of_live_runs_would_hold(
    monkeypatch: pytest.MonkeyPatch, scheme: str, kind: str
) -> None:
    """There each call comes once, so it is never known already."""
    tables: dict[Any, IncomingCalls[Any, Any]] = {}
    numbers, answered = itertools.count(), 0

    def table(party: Any) -> IncomingCalls[Any, Any]:
        return tables.setdefault(party, IncomingCalls(party.who))

    def before(cls: Any, name: str, act: Any) -> None:
        does = getattr(cls, name)

        def both(self: Any, *args: Any) -> Any:
            act(*args) if cls is not SimulatedProcess else act(self, *args)
            return does(self, *args)

        monkeypatch.setattr(cls, name, both)

    def opens(party: Any, call: Any) -> None:
        table(party).take(party, call.incarnation.rank, 0, next(numbers), call)

    def answers(party: Any, call: Any, message: Any) -> None:
        nonlocal answered
        answered += 1
        assert table(party).oldest(party, call.incarnation.rank, message) is call

    before(SimulatedProcess, "admit", opens)
    before(Messaging, "_send_answer", answers)
    before(Members, "hears_gone", lambda party, rank: table(party).gone(rank))
    before(Members, "hears_came", lambda party, rank: table(party).came(rank))
    more = {"for_s": 5.0} if kind == "crash" else {}
    with_fault(scheme, kind=kind, at_s=20.5, workers=(1,), **more)
    assert answered
