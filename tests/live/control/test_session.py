"""A party's end of the control plane, against a coordinator that follows a script."""

from __future__ import annotations

import queue
import sys
import threading
from pathlib import Path

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.errors import PeerLost, Stopped
from paceline.core.sharding import lay_out
from paceline.core.trace import CpuUsed, Decided, Ended, Record, Span
from paceline.live.control import reports
from paceline.live.control.reports import records_of
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.node.published_state import PublishedState, ReadState
from paceline.live.protocol.transport import Envelope, Kind, Transport
from tests.live.control.scene import Scene
from tests.live.fakes import PATIENCE_SECONDS, PROGRESS, NumpyMemory, Recorder, happened, in_background, take, vector
from tests.live.node_fixture import Ask

PLAN = control.Plan(workers=1, servers=2, length=10, layout=lay_out(10, 2), seconds_per_step=(), optimizer="")


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


def test_the_cores_that_a_party_has_used_are_in_its_records(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPORT_SECONDS", 0.01)
    monkeypatch.setattr(reports, "CPU_SECONDS", 0.02)
    scene.begin()
    found: list[Record] = []
    while len(found) < 2:
        message = scene.hears()
        found += records_of(message.lines) if isinstance(message, control.Records) else ()
    first, second = found
    assert isinstance(first, CpuUsed)
    assert isinstance(second, CpuUsed)
    assert first.party == second.party == str(scene.session.node.me)
    assert 0 <= first.seconds <= second.seconds
    assert second.at >= reports.CPU_GROWTH * first.at
    assert first.cores >= 1


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


def test_a_report_to_a_coordinator_that_has_just_gone_is_no_error_of_its_own(scene: Scene) -> None:
    scene.begin(lambda: PROGRESS)
    scene.hub._members.pop(COORDINATOR)  # gone, and `lost` is still on its way
    scene.session.reports._again()
    assert not scene.session.over.is_set()
    scene.coordinator.close()


def test_traffic_is_that_of_the_transport(scene: Scene) -> None:
    scene.begin()
    scene.node.place(None, PLAN.layout)
    scene.node.out.call("servers", Ask(v=vector(*range(10)), n=1))
    assert scene.session.traffic()[0] == 40
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


def test_a_worker_that_goes_home_when_the_run_stops_says_goodbye_all_the_same(scene: Scene) -> None:
    """The end of the run voids its question whether the server has everything, and it asks once more."""
    scene.begin()
    scene.session.handshake.reached.add(server(0))
    asked = scene.heard[server(0)]
    asked.silent = 1
    leaving = in_background(lambda: scene.session.leave("SIGTERM", drained=True))
    assert asked.asked.acquire(timeout=PATIENCE_SECONDS)
    scene.tell(control.Stop(reason="samples"))
    leaving()
    assert asked.asked.acquire(blocking=False), "it was asked again"
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


class Neighbour(Recorder):
    """Worker 1, which says in order what it is asked whether it has taken, and answers when the test lets it."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self.transport, self.asked = transport, queue.SimpleQueue[int]()

    def deliver(self, src: Party, envelope: Envelope) -> None:
        assert isinstance(envelope.message, ReadState)
        self.asked.put(envelope.id)

    def answers(self) -> None:
        answer = PublishedState(v=NumpyMemory().empty(0))
        self.transport.send(worker(0), Envelope(Kind.REPLY, answer, take(self.asked)))


def test_a_drained_worker_ends_when_the_others_have_answered_and_not_at_exit(scene: Scene) -> None:
    scene.begin()
    there = scene.hub.transport(worker(1))
    neighbour = Neighbour(there)
    there.open(neighbour)
    scene.node.neighbours.meet([1], [])
    leaving = in_background(lambda: scene.session.leave("SIGTERM", drained=True))
    neighbour.answers()
    leaving()
    assert scene.hears() == control.Left(reason="SIGTERM", drained=True)
    ending = threading.Event()

    def wait() -> control.Finish | None:
        finish = scene.session.wait_for_finish()
        ending.set()
        return finish

    waiting = in_background(wait)
    scene.tell(control.Exit())
    number = take(neighbour.asked)
    assert not ending.is_set(), "what worker 1 had sent it may be on its way"
    there.send(worker(0), Envelope(Kind.REPLY, PublishedState(v=NumpyMemory().empty(0)), number))
    assert waiting() is None
    there.close()
