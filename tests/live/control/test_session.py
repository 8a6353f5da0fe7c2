"""A party's end of the control plane, against a coordinator that follows a script."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import PeerLost, ProtocolError, Stopped, TimedOut
from paceline.core.sharding import lay_out
from paceline.core.trace import Decided, Ended, Record, Span
from paceline.live.control import reports
from paceline.live.control.reports import records_of
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.node.published_state import PublishedState
from paceline.live.party import COORDINATOR, EVALUATOR, Party, server, worker
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import NumpyMemory, Recorder, happened, in_background, net_threads, take, vector
from tests.live.node_fixture import Answerer, Ask, nothing

PLAN = control.Plan(workers=1, servers=2, length=10, layout=lay_out(10, 2), seconds_per_step=(), optimizer="")
PROGRESS = control.Progress(
    steps=1,
    samples=2,
    exchanges=3,
    seconds_computing=0.1,
    seconds_waiting=0.2,
    seconds_communicating=0.3,
    bytes_up=4,
    bytes_down=5,
)


class Scene:
    """Worker 0 with its session, two servers that only listen, and the coordinator whose part the test plays."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.script = Recorder()
        self.coordinator = self.hub.transport(COORDINATOR)
        self.coordinator.open(self.script)
        self.heard: dict[Party, Recorder] = {}
        for shard in range(2):
            self.heard[server(shard)] = Recorder()
            self.hub.transport(server(shard)).open(self.heard[server(shard)])
        transport = self.hub.transport(worker(0))
        self.node = Node(transport, NumpyMemory(), timeout_s=15.0)
        self.session = Session(transport, self.node, timeout_s=15.0)

    def tell(self, message: Any) -> None:
        self.coordinator.send(worker(0), Envelope(Kind.CONTROL, message))

    def hears(self) -> Any:
        src, message = self.script.next()
        assert src == worker(0)
        return message

    def begin(self, report: Any = None) -> None:
        """As far as the start of training."""
        self.session.hello("hub:coordinator", "cpu")
        assert isinstance(self.hears(), control.Hello)
        self.tell(control.Go())
        self.session.expect(control.Go)
        self.session.reports.begin(report)

    def close(self) -> None:
        self.session.close()
        for who in (*self.heard, COORDINATOR):
            member = self.hub.find(who)
            if member is not None:
                member.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()
    assert net_threads() == []


def test_it_says_hello_and_connects_to_whom_it_is_told(scene: Scene) -> None:
    scene.session.hello("hub:coordinator", "cuda:1")
    hello = scene.hears()
    assert (hello.address, hello.pid, hello.device) == ("hub:worker 0", os.getpid(), "cuda:1")
    scene.tell(control.Roster(addresses={"server 0": "hub:server 0", "server 1": "hub:server 1"}, hosts={}))
    scene.session.connect([server(0), server(1)])
    scene.tell(PLAN)
    assert scene.session.expect(control.Plan) == PLAN


def test_what_is_heard_after_the_roster_is_known_when_a_newcomer_has_made_its_model(scene: Scene) -> None:
    scene.session.hello("hub:coordinator", "cpu")
    roster = control.Roster(
        addresses={"worker 1": "hub:one", "worker 2": "hub:two"}, hosts={}, incarnations=(1, 0, 0), gone=(2,), lost=(2,)
    )
    came = control.WorkerJoined(rank=2, incarnation=3, view=5, address="hub:two again", host="there")
    for message in (roster, control.WorkerLeft(rank=1, lost=True), came):
        scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, message))
    session = scene.session
    session.connect(())
    assert (session.departed, session.lost_ranks, session.late) == ({1}, {1}, True)
    assert (session.directory.addresses["worker 2"], session.directory.incarnations[2], session.host_of(worker(2))) == (
        *("hub:two again", 3),
        "there",
    )


def test_a_newcomer_calls_those_that_are_here_and_those_that_come_with_it(scene: Scene) -> None:
    heard = {rank: Recorder() for rank in (1, 2)}
    for rank, recorder in heard.items():
        scene.hub.transport(worker(rank)).open(recorder)
        scene.heard[worker(rank)] = recorder
    addresses = {f"worker {rank}": f"hub:worker {rank}" for rank in range(5)}
    roster = control.Roster(
        addresses=addresses,
        hosts={},
        incarnations=(1, 0, 1, 1, 0),
        gone=(0, 2, 3, 4),
        lost=(0, 2, 3),
        joining=(0, 2, 3),
    )
    scene.session.hello("hub:coordinator", "cpu")
    scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, roster))
    meeting = in_background(scene.session.meet_workers)
    for rank, recorder in heard.items():  # worker 3 is lost again, and worker 4 has left
        src, envelope = take(recorder.delivered)
        there = scene.hub.find(worker(rank))
        assert there is not None
        there.send(src, Envelope(Kind.REPLY, PublishedState(v=vector()), envelope.id))
    meeting()


@pytest.mark.parametrize(
    ("hosts", "measured"),
    [
        ({"worker 0": "here", "server 0": "here", "server 1": "here"}, []),
        ({"worker 0": "here", "server 0": "here", "server 1": "there"}, [False, True]),
        ({"worker 0": "here", "server 0": "there", "server 1": "there"}, [True, True]),
    ],
)
def test_the_links_to_servers_on_other_hosts_are_measured(
    scene: Scene, hosts: dict[str, str], measured: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.session.hello("hub:coordinator", "cpu")
    scene.tell(control.Roster(addresses={"server 0": "hub:server 0", "server 1": "hub:server 1"}, hosts=hosts))
    scene.session.connect([server(0), server(1)])
    looked: list[tuple[Party, str]] = []
    monkeypatch.setattr(
        "paceline.live.control.handshake.timed_look", lambda node, who, what: looked.append((who, what)) or 0.001
    )
    links = scene.session.links(2)
    assert [link is not None for link in links] == measured
    for number, link in enumerate(links):
        if link is not None:
            link.measure()
            assert {who for who, _ in looked} == {server(number)}
            looked.clear()
    assert scene.session.links(1) == []


def test_a_coordinator_that_is_not_there_is_a_lost_peer(scene: Scene) -> None:
    scene.coordinator.close()
    with pytest.raises(PeerLost, match="worker 0 cannot reach coordinator"):
        scene.session.hello("hub:coordinator", "cpu")


def test_a_message_out_of_turn_is_a_protocol_error(scene: Scene) -> None:
    scene.session.hello("hub:coordinator", "cpu")
    scene.tell(control.Go())
    with pytest.raises(ProtocolError, match="worker 0 expected Plan, got Go"):
        scene.session.expect(control.Plan)


def test_a_wait_for_the_coordinator_names_what_it_waited_for() -> None:
    transport = Hub().transport(worker(0))
    impatient = Session(transport, Node(transport, NumpyMemory()), timeout_s=0.01)
    with pytest.raises(TimedOut, match="worker 0 waited 0 s for Plan"):
        impatient.expect(control.Plan)
    assert impatient.within(0.0) is None


def test_the_clock_starts_when_go_arrives_not_when_it_is_looked_at(scene: Scene) -> None:
    scene.session.hello("hub:coordinator", "cpu")
    scene.node._began -= 1000.0
    scene.tell(control.Go())
    scene.tell(control.Total(samples=1))
    scene.session.expect(control.Go)
    assert scene.node.now() < 1000


def test_progress_and_records_are_reported_again_and_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPORT_SECONDS", 0.01)
    scene.session.reports.note(Ended(at=1.0, reason="one"))
    scene.session.reports.note(Ended(at=2.0, reason="two"))
    scene.begin(lambda: PROGRESS)
    assert scene.hears() == PROGRESS
    assert list(records_of(scene.hears().lines)) == [Ended(at=1.0, reason="one"), Ended(at=2.0, reason="two")]
    assert scene.hears() == PROGRESS
    scene.session.reports.note(Ended(at=3.0, reason="three"))
    while (message := scene.hears()) == PROGRESS:
        pass
    assert list(records_of(message.lines)) == [Ended(at=3.0, reason="three")]


def test_what_a_worker_spent_is_told_as_its_spans_would_be_and_in_turn_with_what_it_notes(scene: Scene) -> None:
    spans = [
        Span(at=1.5, rank=0, activity="computing", seconds=0.25, steps=1, samples=32, exchanges=2),
        Span(at=1.75, rank=0, activity="waiting", seconds=0.125),
        Span(at=1.75, rank=0, activity="communicating", seconds=0.0625, hidden=0.5),
    ]
    decision = Decided(at=1.6, party="worker 0", rank=0, verdict="wait", reason="for worker 1", whom=(1,))
    noted: list[Record] = [spans[0], decision, spans[1], spans[2]]
    scene.begin()
    reports = scene.session.reports
    reports.spent(1.5, "computing", 0.25, 1, 32, exchanges=2)
    reports.note(decision)
    reports.spent(1.75, "waiting", 0.125)
    reports.spent(1.75, "communicating", 0.0625, hidden=0.5)
    for record in noted:
        reports.note(record)
    reports.flush()
    assert list(records_of(scene.hears().lines)) == 2 * noted


def test_many_records_are_cut_into_messages_that_fit(scene: Scene) -> None:
    for n in range(1000):
        scene.session.reports.note(Decided(at=float(n), party="p", rank=n, verdict="wait", reason="ü" * 100))
    scene.begin()
    scene.session.reports.flush()
    ranks: list[int] = []
    while len(ranks) < 1000:
        lines = scene.hears().lines
        assert len(lines.encode()) < 64 * 1024
        ranks += [record.rank for record in records_of(lines) if isinstance(record, Decided)]
    assert ranks == list(range(1000))


def test_two_threads_may_report_at_once(scene: Scene) -> None:
    scene.begin()
    gate = threading.Barrier(2)

    def flush() -> None:
        gate.wait(15)
        for _ in range(200):
            scene.session.reports.note(Ended(at=0.0, reason="r"))
            scene.session.reports.flush()

    flushes = [in_background(flush) for _ in range(2)]
    for flushed in flushes:
        flushed()
    count = 0
    while count < 400:
        records = list(records_of(scene.hears().lines))
        assert set(records) == {Ended(at=0.0, reason="r")}, "an empty message"
        count += len(records)


def test_a_report_is_never_overtaken_by_another(scene: Scene) -> None:
    entered, go_on = threading.Semaphore(0), threading.Event()

    def report() -> control.Progress:
        entered.release()
        assert happened(go_on)
        return PROGRESS

    scene.begin(report)
    first = in_background(scene.session.reports.flush)
    assert entered.acquire(timeout=15)
    second = in_background(scene.session.reports.flush)
    assert not entered.acquire(timeout=0.05), "two threads report at once"
    go_on.set()
    first()
    second()


def test_the_total_of_all_workers_is_known_to_each(scene: Scene) -> None:
    scene.begin()
    scene.tell(control.Total(samples=42))
    scene.tell(PLAN)
    scene.session.expect(control.Plan)
    assert scene.session.total_samples == 42


def test_a_worker_that_is_gone_is_told_to_the_role_of_a_server(scene: Scene) -> None:
    role = Answerer(nothing)
    scene.node.place(role)
    scene.begin()
    scene.tell(control.WorkerLeft(rank=3))
    scene.tell(PLAN)
    scene.session.expect(control.Plan)
    assert role.left == [3]
    assert scene.session.departed == {3}


@pytest.mark.parametrize("rolled_back", [False, True])
def test_servers_that_go_on_from_an_earlier_state_hear_the_last_learning_rate_again(
    scene: Scene, rolled_back: bool
) -> None:
    scene.begin()
    scene.node.place(Answerer(nothing), PLAN.layout)
    resume = control.Resume(server_view=3 if rolled_back else 0, rolled_back=rolled_back, replaced=(1,))
    scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, resume))  # none told yet
    scene.session.tell_rate(2, control.Rate(lr=0.5))
    scene.session.tell_rate(2, control.Rate(lr=0.25))
    scene.node.out.call("servers", Ask(v=vector(*range(10)), n=1))
    heard = scene.heard[server(1)]
    assert [heard.next()[1] for _ in range(2)] == [control.Rate(lr=0.5), control.Rate(lr=0.25)]
    assert isinstance(heard.next()[1], Ask)
    scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, resume))
    assert heard.next()[1] == control.Rate(lr=0.25), "before anything is asked again"
    if not rolled_back:
        assert isinstance(heard.next()[1], Ask)


def test_who_comes_late_does_not_need_the_evaluator(scene: Scene) -> None:
    joining = in_background(lambda: scene.session.hello("hub:coordinator", "cpu"))
    assert isinstance(scene.hears(), control.Hello)
    joining()
    addresses = {"evaluator": "hub:nobody", "server 0": "hub:server 0"}
    scene.tell(control.Roster(addresses=addresses, hosts=dict.fromkeys(addresses, "here"), incarnations=(1,)))
    scene.session.connect(())
    assert scene.session.has(EVALUATOR)
    with pytest.raises(PeerLost):
        scene.session.reach_if_there(EVALUATOR)
    scene.session.meet_evaluator()


def test_stop_ends_the_loop_box_but_not_the_party(scene: Scene) -> None:
    scene.begin(lambda: PROGRESS)
    scene.node.place(None, PLAN.layout)
    waiting = in_background(lambda: scene.node.out.call("servers", Ask(v=vector(*range(10)), n=1)).wait(15.0))
    scene.heard[server(1)].next()
    scene.tell(control.Stop(reason="samples"))
    with pytest.raises(Stopped, match="samples"):
        waiting()
    assert scene.session.over.is_set()
    assert scene.session.stop_reason == "samples"
    scene.session.leave("samples")
    assert scene.hears() == PROGRESS
    assert scene.hears() == control.Left(reason="samples")
    finishing = in_background(scene.session.wait_for_finish)
    scene.tell(control.Finish(holder=0))
    assert finishing() == control.Finish(holder=0)
    ending = in_background(scene.session.done)
    assert scene.hears() == control.Saved()
    scene.tell(control.Exit())
    ending()


def test_a_party_that_only_answers_tells_its_last_notes_before_it_may_end(scene: Scene) -> None:
    scene.begin()
    serving = in_background(scene.session.serve)
    scene.session.reports.note(Ended(at=1.0, reason="last note"))
    scene.tell(control.Finish(holder=0))
    assert "last note" in scene.hears().lines
    assert scene.hears() == control.Saved()
    scene.tell(control.Exit())
    serving()


def test_after_exit_nobody_misses_the_coordinator(scene: Scene) -> None:
    scene.begin()
    serving = in_background(scene.session.serve)
    scene.tell(control.Finish(holder=0))
    assert scene.hears() == control.Saved()
    scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, control.Exit()))
    scene.session.handlers.lost(COORDINATOR, "it left")
    serving()


@pytest.mark.parametrize("wait", ["expect", "serve", "wait_for_finish", "within"])
def test_losing_the_coordinator_ends_every_wait(scene: Scene, wait: str) -> None:
    scene.begin()
    arguments = {"expect": (control.Plan,), "within": (15.0,)}.get(wait, ())
    waiting = in_background(lambda: getattr(scene.session, wait)(*arguments))
    scene.coordinator.close()
    with pytest.raises(PeerLost, match=r"the coordinator is gone \(it left\)"):
        waiting()
    assert scene.session.over.is_set()
    with pytest.raises(PeerLost, match="the coordinator is gone"):
        scene.node.advance()


def test_losing_anybody_else_ends_only_the_calls_that_are_open_there(scene: Scene) -> None:
    scene.begin()
    scene.node.place(None, PLAN.layout)
    waiting = in_background(lambda: scene.node.out.call("servers", Ask(v=vector(*range(10)), n=1)).wait(15.0))
    scene.heard[server(1)].next()
    lost = scene.hub.find(server(0))
    assert lost is not None
    lost.close()
    with pytest.raises(PeerLost, match="lost server 0: it left"):
        waiting()
    assert not scene.session.over.is_set()
    assert not scene.node.stopped


@pytest.mark.parametrize("wait", ["serve", "wait_for_finish"])
def test_what_goes_wrong_on_the_thread_that_delivers_reaches_the_partys_own(scene: Scene, wait: str) -> None:
    def clumsy(src: int, message: Any) -> Iterator[Any]:
        raise ZeroDivisionError("clumsy")
        yield

    scene.node.place(Answerer(clumsy))
    scene.begin()
    waiting = in_background(getattr(scene.session, wait))
    scene.coordinator.send(worker(0), Envelope(Kind.TELL, Ask(v=vector(1), n=1)))
    with pytest.raises(ZeroDivisionError, match="clumsy"):
        waiting()
    scene.session.tell(control.Failed(cause="clumsy", details=""))  # it can still say so
    assert scene.hears() == control.Failed(cause="clumsy", details="")


def test_a_report_to_a_coordinator_that_has_just_gone_is_no_error_of_its_own(scene: Scene) -> None:
    scene.begin(lambda: PROGRESS)
    scene.hub._members.pop(COORDINATOR)  # gone, and `lost` is still on its way
    scene.session.reports._again()
    assert not scene.session.over.is_set()
    scene.coordinator.close()


def test_traffic_is_that_of_the_transport(scene: Scene) -> None:
    scene.begin()
    scene.node.out.call(0, Ask(v=vector(1, 2), n=1))
    assert scene.session.traffic()[0] == 8
    scene.node.stop()


def test_losses_are_told_to_whoever_was_connected(scene: Scene) -> None:
    scene.begin()
    scene.session.close()
    assert take(scene.script.losses) == (worker(0), "it left")


def test_a_worker_says_where_its_loop_is_when_it_is_asked(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, control.Explain()))
    assert "test_a_worker_says_where_its_loop_is_when_it_is_asked" in (tmp_path / "log").read_text()


def test_a_worker_that_goes_home_when_the_run_stops_says_goodbye_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.begin()
    scene.session.handshake.reached.add(server(0))

    def stopped(who: Party, what: str) -> Any:
        raise Stopped

    monkeypatch.setattr(scene.node, "read_state_of", stopped)
    scene.session.leave("SIGTERM", drained=True)
    while not isinstance(said := scene.hears(), control.Left):
        pass
    assert said == control.Left(reason="SIGTERM", drained=True)


def test_a_server_in_a_long_update_is_heard_of_but_not_one_that_never_comes_out_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "MEANWHILE_SECONDS", 0.05)
    monkeypatch.setattr(reports, "UPDATE_SECONDS_MAX", 3.0)
    hub, script, out = Hub(), Recorder(), threading.Event()
    coordinator = hub.transport(COORDINATOR)
    coordinator.open(script)
    transport = hub.transport(server(0))
    of_server = Session(transport, Node(transport, NumpyMemory()))
    of_server.hello(coordinator.address, "cpu")
    of_server.reports.begin()
    assert isinstance(script.next()[1], control.Hello)
    in_update = threading.Event()
    transport.call_later(0.0, lambda: (in_update.set(), out.wait(15.0)))  # type: ignore[arg-type, return-value]
    assert happened(in_update)
    while not script.delivered.empty():
        script.next()
    assert [script.next() for _ in range(3)] == [(server(0), control.Beat())] * 3
    with pytest.raises(queue.Empty):
        while True:
            script.delivered.get(timeout=1.0)
    out.set()
    assert script.next() == (server(0), control.Beat())
    of_server.close()
    coordinator.close()
