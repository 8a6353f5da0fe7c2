"""A server that is lost is replaced: what the coordinator says to whom, and what a party does with it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import server_recovery
from paceline.core.coordination.decisions import Timer
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.party import EVALUATOR, Party, server, worker
from paceline.core.effects import SERVERS, Call, Compute, Effect, Tell
from paceline.core.errors import PeerLost, ProtocolError, Undone
from paceline.core.trace import Applied, MemberChange
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.net.inprocess_transport import HubTransport
from paceline.live.node.node import Node
from paceline.live.node.published_state import PublishedState
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import in_background, vector
from tests.live.node_fixture import LAYOUT, Answerer, Ask, Loop, Stage, echo, nothing, servers
from tests.live.scripted_parties import Company, progress, ready

S0, S1, S2, W0, W1 = server(0), server(1), server(2), worker(0), worker(1)


class Snapshot:
    """There is one, or not yet."""

    def __init__(self, available: bool = True, refused: str = "", copies: bool = False) -> None:
        self.available, self.refused, self.held, self.copies = available, refused, False, copies

    def refuses(self, ready: control.Ready, servers: int) -> str:
        return self.refused

    def begin(self, plan: control.Plan) -> None: ...

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False


@pytest.fixture
def companies(companies: Callable[..., Company]) -> Callable[..., Company]:
    """Of two servers, in training."""

    def make(snapshots: Snapshot | None = None, **more: Any) -> Company:
        company = companies(**{"servers": 2, "allreduce": "servers", "snapshots": snapshots, **more})
        company.train()
        return company

    return make


def dies(company: Company, who: Party) -> None:
    company.kill(who)
    company.settled()


def starts(company: Company, who: Party, incarnation: int = 1) -> HubTransport:
    """A new incarnation, up to the order that it gets."""
    member = company.hub.transport(who, incarnation=incarnation)
    member.open(company.heard[who])
    company.say(who, control.Hello(address=f"hub:{who}/{incarnation}", pid=2, host="there", device="cpu"))
    assert hears_next(company, who, control.Roster).addresses[str(who)] == f"hub:{who}/{incarnation}"
    assert company.hears(who).replaced
    return member


def hears_next(company: Company, who: Party, wanted: type) -> Any:
    while not isinstance(message := company.hears(who), wanted):
        pass
    return message


def events(company: Company) -> list[tuple[str, str]]:
    records = [record for record in company.ears.records if isinstance(record, MemberChange)]
    return [(record.party, record.event) for record in records if record.event != "joined"]


def test_all_shards_go_back_together_and_then_everybody_asks_again(companies: Any) -> None:
    snapshot = Snapshot()
    company: Company = companies(snapshot)
    applied = Applied(at=1.0, shard=0, ranks=(0,), version=50, staleness=0, weight=1.0, samples=8)
    company.coordinator.machine.recovery.recorded(applied)
    dies(company, S0)
    assert company.coordinator.phase is RunPhase.TRAINING
    assert snapshot.held, "the snapshot may not change under those who read it"
    order = company.hears(S1)
    assert order == control.Restore(
        number=order.number, server_view=order.server_view, source="coordinator", departed=()
    )
    starts(company, S0)
    assert company.hears(S0) == order
    company.say(S1, control.Prepared(number=order.number, version=42, undone=7))
    company.settled()
    assert all(company.heard[who].delivered.empty() for who in (W0, W1, EVALUATOR)), "not all servers are there"
    company.say(S0, control.Prepared(number=order.number, version=42))
    assert company.hears(S0).at > 0
    for who in (S1, W0, W1, EVALUATOR):
        assert company.hears(who) == control.Resume(server_view=order.server_view, rolled_back=True, replaced=(0,))
    company.settled()
    assert not snapshot.held
    assert events(company) == [("server 0", "lost"), ("server 0", "replaced")]
    assert company.ears.records[-1].reason == "all shards were restored to version 42 (8 updates undone)"  # type: ignore[attr-defined]


def test_the_one_that_comes_calls_no_worker_that_is_lost(companies: Any) -> None:
    """As where a whole host is lost: each call would take its time, and everybody waits."""
    company: Company = companies(Snapshot())
    dies(company, W0)
    dies(company, S0)
    company.hub.transport(S0, incarnation=1).open(company.heard[S0])
    company.say(S0, control.Hello(address="hub:again", pid=2, host="there", device="cpu"))
    roster = hears_next(company, S0, control.Roster)
    assert (roster.gone, roster.lost, roster.incarnations) == ((0,), (0,), ())


def test_another_server_that_is_lost_meanwhile_begins_another_view(companies: Any) -> None:
    company: Company = companies(Snapshot())
    dies(company, S0)
    first = company.hears(S1)
    starts(company, S0)
    assert company.hears(S0) == first
    company.say(S0, control.Prepared(number=first.number))
    dies(company, S1)
    second = company.hears(S0)
    assert second.server_view > first.server_view
    starts(company, S1)
    assert company.hears(S1) == second
    company.say(S1, control.Prepared(number=second.number))
    company.say(S0, control.Prepared(number=first.number))
    company.settled()
    assert company.heard[W0].delivered.empty(), "server 0 has not done what it was told last"
    company.say(S0, control.Prepared(number=second.number))
    assert company.hears(W0).server_view == second.server_view


def test_lives_that_ended_before_they_said_hello_are_counted(companies: Any) -> None:
    company: Company = companies(Snapshot())
    dies(company, S0)
    company.hub.transport(S0, incarnation=3).open(company.heard[S0])
    company.say(S0, control.Hello(address="hub:server 0/3", pid=2, host="there", device="cpu", incarnation=3))
    assert hears_next(company, S0, control.Restore).source == "coordinator"
    assert company.coordinator.incarnation_of(S0) == 3


def test_a_worker_that_is_lost_meanwhile_is_known_to_the_new_server(companies: Any) -> None:
    company: Company = companies(Snapshot())
    dies(company, W1)
    dies(company, S0)
    assert hears_next(company, S1, control.Restore).departed == (1,)
    starts(company, S0)
    assert company.hears(S0).departed == (1,)


def test_the_run_does_not_end_before_its_model_is_whole_again(companies: Any) -> None:
    company: Company = companies(Snapshot())
    dies(company, S0)
    number = company.hears(S1).number
    for who in (W0, W1):
        company.say(who, progress(1))
        company.say(who, control.Left(reason="steps"))
    company.settled()
    assert company.coordinator.phase is RunPhase.TRAINING
    starts(company, S0)
    for who in (S0, S1):
        company.say(who, control.Prepared(number=number))
    assert hears_next(company, EVALUATOR, control.Finish).holder == 1


def comes_back(company: Company, who: Party, incarnation: int) -> None:
    """A process of a lost worker says hello."""
    company.hub.transport(who, incarnation=incarnation).open(company.heard[who])
    company.say(who, control.Hello(address="hub:again", pid=2, host="here", device="cpu", incarnation=incarnation))
    company.settled()


def workers_come_back(company: Company) -> None:
    """Two of three were lost, and say hello in their second incarnations."""
    for who in (W0, W1):
        dies(company, who)
    for who in (W0, W1):
        comes_back(company, who, 1)
        assert hears_next(company, who, control.Roster).incarnations


def test_newcomers_whom_nobody_would_connect_to_the_new_server_are_sent_home(companies: Any) -> None:
    company: Company = companies(Snapshot(), workers=3)
    workers_come_back(company)
    dies(company, S0)
    assert hears_next(company, S1, control.Restore).departed == (0, 1)
    assert events(company)[2:] == [("worker 0", "lost"), ("worker 1", "lost"), ("server 0", "lost")]
    for who in (W0, W1):
        with pytest.raises(PeerLost):
            company.say(who, ready())


@pytest.mark.parametrize("another_comes", [False, True])
def test_a_newcomer_that_dies_while_it_waits_for_servers_does_not_join(companies: Any, another_comes: bool) -> None:
    company: Company = companies(Snapshot())
    dies(company, W1)
    dies(company, S0)
    number = hears_next(company, S1, control.Restore).number
    comes_back(company, W1, 1)
    dies(company, W1)
    if another_comes:
        comes_back(company, W1, 2)
    starts(company, S0)
    for who in (S0, S1):
        company.say(who, control.Prepared(number=number))
    company.settled()
    assert company.coordinator.incarnation_of(W1) == (2 if another_comes else 0)
    if another_comes:
        assert hears_next(company, W1, control.Roster).incarnations
    assert company.heard[W1].delivered.empty()
    assert events(company)[-1] == ("server 0", "replaced")


def test_newcomers_that_only_the_lost_server_had_not_heard_of_are_sent_home(companies: Any) -> None:
    company: Company = companies(Snapshot(), workers=3)
    workers_come_back(company)
    for who in (W0, W1):
        company.say(who, ready())
    came = [hears_next(company, S1, control.WorkerJoined).view for _ in range(2)]
    for who in (S1, EVALUATOR, worker(2), W0, W1):
        company.say(who, control.Aware(view=max(came)))
    company.settled()
    dies(company, S0)
    order = hears_next(company, S1, control.Restore)
    assert order.departed == (0, 1)
    assert events(company)[2:] == [("worker 0", "lost"), ("worker 1", "lost"), ("server 0", "lost")]
    for who in (W0, W1):
        heard = company.heard[who].delivered
        assert not any(isinstance(heard.get()[1].message, control.Plan | control.Go) for _ in range(heard.qsize()))


@pytest.mark.parametrize("snapshots", [None, Snapshot(available=False), Snapshot(refused="no")])
def test_without_a_snapshot_a_lost_server_ends_the_run(companies: Any, snapshots: Snapshot | None) -> None:
    company: Company = companies(snapshots)
    dies(company, S0)
    who, cause, _ = company.told("failed")
    assert (who, cause) == (S0, "lost server 0: it left")


def test_an_answer_on_its_way_when_its_question_became_void_is_no_offence(companies: Any) -> None:
    company: Company = companies(Snapshot())
    asked = in_background(lambda: company.coordinator.node.version_of(S1, "version"))
    number = company.heard[S1].delivered.get(timeout=10)[1].id
    dies(company, S0)
    with pytest.raises(Undone):
        asked()
    assert company.coordinator.room_for(S1, Kind.REPLY, number, PublishedState, [4], []) != []
    with pytest.raises(ProtocolError, match="sends vectors to the coordinator"):
        company.coordinator.room_for(S1, Kind.REPLY, number + 1000, PublishedState, [4], [])


def test_one_that_dies_again_and_again_ends_the_run(companies: Any) -> None:
    company: Company = companies(Snapshot())
    dies(company, S0)
    for incarnation in (1, 2, 3):
        starts(company, S0, incarnation)
        dies(company, S0)
    who, cause, _ = company.told("failed")
    assert who == S0
    assert cause.endswith("; it has died 4 times in a row within 5 s")


def test_one_whose_lives_are_long_may_die_as_often_as_it_likes(companies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_recovery, "SHORT_SECONDS", 0.0)
    company: Company = companies(Snapshot())
    dies(company, S0)
    for incarnation in range(1, 2 * server_recovery.INCARNATIONS_MAX):
        order = hears_next(company, S1, control.Restore)
        starts(company, S0, incarnation)
        for who in (S0, S1):
            company.say(who, control.Prepared(number=order.number))
        hears_next(company, S0, control.Go)
        dies(company, S0)
    assert events(company).count(("server 0", "lost")) == 2 * server_recovery.INCARNATIONS_MAX


def falls_silent(coordinator: Coordinator, silent: Any) -> None:
    """On the coordinator's thread."""
    with coordinator._carried_out():
        coordinator.machine.elasticity.carry_out(silent)


def test_one_that_falls_silent_again_and_again_ends_the_run_too(companies: Any) -> None:
    company: Company = companies(Snapshot())
    dies(company, S0)
    coordinator = company.coordinator
    for incarnation in (1, 2, 3):
        silent_one = starts(company, S0, incarnation)
        silent = coordinator.machine.run.members.lost(0.0, S0, incarnation, "silent")
        coordinator._transport.call_later(0.0, functools.partial(falls_silent, coordinator, silent))
        company.settled()
        silent_one.close()
    assert company.told("failed")[:2] == (S0, "lost server 0: silent; it has died 4 times in a row within 5 s")


def test_nothing_of_an_earlier_order_counts_when_the_server_that_came_is_lost_as_well(companies: Any) -> None:
    company: Company = companies(Snapshot())
    dies(company, S0)
    first = company.hears(S1)
    starts(company, S0)
    company.say(S1, control.Prepared(number=first.number))
    dies(company, S0)
    second = company.hears(S1)
    starts(company, S0, incarnation=2)
    company.say(S0, control.Prepared(number=second.number))
    company.coordinator.timer_ran_out(Timer.SERVERS_BACK, first.number)
    company.settled()
    assert company.heard[W0].delivered.empty(), "server 1 has not gone back a second time"
    company.say(S1, control.Prepared(number=second.number))
    assert company.hears(W0).server_view == second.server_view
    told = company.ears.told
    assert "failed" not in [told.get()[0] for _ in range(told.qsize())], "the time of the second order has just begun"


def test_nobody_else_may_come_back_by_itself(companies: Any) -> None:
    company: Company = companies(Snapshot())
    company.say(S1, control.Hello(address="elsewhere", pid=1, host="h", device="cpu"))
    assert "says hello while the run is training" in str(company.escaped.get(timeout=10))


# ---- a party that asks servers -----------------------------------------------------------------------------------
class Restarting(Loop):
    """Asks the servers once, then computes; counts how often it began."""

    def __init__(self) -> None:
        super().__init__(self._run)
        self.begun = self.forgot = 0
        self.answers: list[Any] = []

    def _run(self) -> Generator[Effect, Any, None]:
        self.begun += 1
        self.answers.append((yield Call(SERVERS, Ask(v=vector(*range(10)), n=self.begun))))
        yield Compute(vector(1.0))

    def on_rollback(self) -> None:
        self.forgot += 1


def without_server_1(stage: Stage) -> tuple[list[Answerer], Node, Restarting, Callable[[], Any]]:
    """Servers that never answer, of which one is lost; the worker that has asked them, and what it waits for."""
    roles = servers(stage, nothing)
    node = stage.node(W0)
    role = Restarting()
    node.place(role, LAYOUT)
    node.calls.retries = True
    waiting = in_background(node.advance)
    assert all(role.heard() for role in roles)
    member = stage.hub.find(S1)
    assert member is not None
    member.close()
    return roles, node, role, waiting


def test_a_lost_server_is_waited_for_and_the_box_begins_anew_on_what_it_went_back_to(stage: Stage) -> None:
    _, node, role, waiting = without_server_1(stage)
    fresh = servers(stage)  # in all places
    for who in (S0, S1, server(2)):
        stage.nodes[who].begin_server_view(7)
    assert role.begun == 1
    node.go_back(7, rolled_back=True)
    assert isinstance(waiting(), Compute)
    assert (role.begun, role.forgot) == (2, 1)
    assert role.answers[0].n == 2
    assert [role.came[0][1].n for role in fresh] == [2, 2, 2]


def test_what_is_not_answered_is_asked_again_of_the_server_in_the_place(stage: Stage) -> None:
    roles, node, role, waiting = without_server_1(stage)
    fresh = Answerer(echo)
    stage.node(S1).place(fresh)
    for _ in range(2):  # in vain the second time
        node.out.ask_again([S1])
    for who, answer in ((S0, roles[0]), (server(2), roles[2])):
        for effect in echo(0, answer.came[0][1]):
            with stage.nodes[who]._lock:
                stage.nodes[who].release(answer, [effect])
    assert isinstance(waiting(), Compute)
    assert (role.begun, role.forgot) == (1, 0), "the box has noticed nothing"
    assert list(role.answers[0].v) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert [len(role.came) for role in (roles[0], roles[2])] == [1, 1]


def test_what_was_said_in_an_earlier_view_is_not_heard(stage: Stage) -> None:
    roles = servers(stage, nothing)
    node = stage.node(W0)
    node.place(Loop(lambda: iter(())), LAYOUT)  # type: ignore[arg-type, return-value]
    stage.nodes[S0].begin_server_view(3)
    pending = node.out.call(SERVERS, Ask(v=vector(*range(10)), n=1))
    assert all(role.heard() for role in roles[1:])
    assert roles[0].came == []
    node.go_back(3, rolled_back=True)
    with pytest.raises(Undone):
        pending.wait(5.0)


class TurnAfterGoingBack:
    """The lock of a server, which is given to a message when the server has gone back."""

    def __init__(self, node: Node) -> None:
        self._node, self._lock = node, node._lock

    def __enter__(self) -> None:
        self._lock.__enter__()
        self._node.begin_server_view(1)

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


def test_what_waited_while_a_server_went_back_is_not_heard(stage: Stage) -> None:
    (role,) = servers(stage, nothing, count=1)
    node = stage.nodes[S0]
    node._lock = TurnAfterGoingBack(node)  # type: ignore[assignment]
    node.deliver(W0, Envelope(Kind.CALL, Ask(v=vector(1), n=1), id=1))
    assert (role.came, len(node._unanswered)) == ([], 0)


@pytest.mark.parametrize("tells_first", [True, False])
def test_what_a_box_said_before_it_heard_that_servers_went_back_is_not_said_after_it(
    stage: Stage, tells_first: bool
) -> None:
    roles = servers(stage, lambda src, ask: echo(src, ask) if ask.n > 0 else nothing(src, ask))
    node = stage.node(W0)

    def run() -> Generator[Effect, Any, None]:
        told.append(len(told) + 1)
        if told == [1]:
            node.go_back(7, rolled_back=True)
        if tells_first:
            yield Tell(SERVERS, Ask(v=vector(*range(10)), n=-told[-1]))
        yield Call(SERVERS, Ask(v=vector(*range(10)), n=told[-1]))
        yield Compute(vector(1.0))

    told: list[int] = []
    node.place(Loop(run), LAYOUT)
    for who in (S0, S1, S2):
        stage.nodes[who].begin_server_view(7)
    assert isinstance(node.advance(), Compute)
    assert [[ask.n for _, ask in role.came] for role in roles] == [[-2, 2] if tells_first else [2]] * 3


# ---- where servers copy what they answer to one another ----------------------------------------------------------
def test_with_copies_only_the_lost_shard_is_made_anew(companies: Any) -> None:
    company: Company = companies(Snapshot(available=False, copies=True), servers=3)
    dies(company, S1)
    starts(company, S1)
    order = company.hears(S1)
    assert (order.source, order.server_view) == ("server 2", 0)
    company.say(S1, control.Prepared(number=order.number, version=62))
    assert [company.hears(who) for who in (S0, S2, W0)] == [
        control.Resume(server_view=0, rolled_back=False, replaced=(1,))
    ] * 3
    company.settled()
    assert company.ears.records[-1].reason == "restored from its copy, version 62; no acknowledged update is lost"  # type: ignore[attr-defined]


def test_neighbours_that_are_lost_together_take_the_copies_with_them(companies: Any) -> None:
    company: Company = companies(Snapshot(copies=True), servers=3)
    dies(company, S0)
    dies(company, S1)
    assert company.hears(S2).source == "coordinator"
    for who in (S0, S1):
        starts(company, who)
        order = company.hears(who)
        assert order.source == "coordinator"
    for who in (S0, S1, S2):
        company.say(who, control.Prepared(number=order.number, version=40))
    assert company.hears(W0).rolled_back


def test_a_keeper_that_has_not_all_of_it_sends_everybody_to_the_snapshot(companies: Any) -> None:
    company: Company = companies(Snapshot(copies=True))
    dies(company, S0)
    starts(company, S0)
    first = company.hears(S0)
    assert first.source == "server 1"
    company.say(S0, control.Prepared(number=first.number, failed=True))
    second = company.hears(S1)
    assert (second.source, second.server_view > first.server_view) == ("coordinator", True)
    assert company.hears(S0) == second


def test_without_copy_and_snapshot_the_run_ends(companies: Any) -> None:
    company: Company = companies(Snapshot(available=False, copies=True))
    dies(company, S0)
    starts(company, S0)
    company.say(S0, control.Prepared(number=company.hears(S0).number, failed=True))
    assert company.told("failed")[1] == "lost server 0 and the copies of what it held, before the first snapshot"
