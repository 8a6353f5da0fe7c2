"""The live driver with all its parties as threads of one process and numpy vectors: the product without torch.

Workers and servers join and leave as those of `paceline.runtime` do; a step is a gradient of the table's problem and a
short wait, so that speeds differ.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from random import Random
from typing import Any, Protocol

from paceline.core.collective.choice import Choice
from paceline.core.collective.mean_server import Averaged, MeanServer, Part
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.lifecycle import RunRules, RunSize
from paceline.core.coordination.party import Party
from paceline.core.effects import Compute, Computed, Mean, Train, Trained
from paceline.core.errors import Stopped
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme
from paceline.core.sharding import lay_out
from paceline.core.trace import Record
from paceline.live.control.session import Session
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.planning import RunChoices
from paceline.live.net.inprocess_transport import Hub
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.node import Node
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Transport
from paceline.live.same_host.shared_memory import Segments
from paceline.live.state.current_model import final_model
from paceline.live.state.late_join import come_late
from paceline.sim import LocalSteps, plain_sgd
from tests.conformance.schemes_table import DIMENSION, W0, Case, distance, gradient
from tests.live.fakes import NumpyMemory

INITIAL = "initial weights"
DEADLINE_SECONDS = 60.0
SECONDS = (0.0005, 0.001, 0.0006, 0.0012)
"""Of one step, by rank."""

Fabric = Callable[[], "Connect"]


class Connect(Protocol):
    """The transport of a party, in that incarnation of it."""

    def __call__(self, who: Party, take_part: int = 0, /) -> Transport: ...


class Dies(Exception):  # noqa: N818
    """In the middle of everything, without a word."""


def hub() -> Connect:
    meeting = Hub()
    return lambda who, take_part=0: meeting.transport(who, incarnation=take_part)


def tcp() -> Connect:
    return lambda who, take_part=0: TcpTransport(who, "the token of this run", NumpyMemory(), incarnation=take_part)


def unix() -> Connect:
    return lambda who, take_part=0: TcpTransport(
        who, "the token of this run", NumpyMemory(), segments=Segments(), shared_only=True, incarnation=take_part
    )


class Work(Protocol):
    """What a step of a worker gives."""

    def __call__(self, rank: int, w: Any, /) -> Any: ...


class Rendezvous:
    """Carries `Mean` between the threads of one process: the aggregator of the servers, without servers."""

    def __init__(self, workers: int) -> None:
        place = RoleContext(me=0, workers=tuple(range(workers)), w=None, update=lambda w, g, samples: w)
        self._box = MeanServer(None, place)
        self._lock = threading.Lock()
        self._waiting: dict[int, deque[PendingReply]] = defaultdict(deque)

    def of(self, rank: int) -> Member:
        return Member(self, rank)

    def begin(self, rank: int, effect: Mean) -> PendingReply:
        pending = PendingReply(f"Mean {effect.tag}", 1, NumpyMemory())
        part = Part(v=effect.v, among=effect.among, tag=str(effect.tag), weight=effect.weight)
        with self._lock:
            self._waiting[rank].append(pending)
            self._answer(self._box.on(0.0, rank, part))
        return pending

    def gone(self, rank: int) -> None:
        with self._lock:
            self._answer(self._box.on_worker_left(0.0, rank))

    def _answer(self, replies: Iterable[Any]) -> None:
        for reply in replies:
            self._waiting[reply.to].popleft().put(0, reply.message, 0.0)


class Member:
    """One worker's end of a rendezvous."""

    def __init__(self, rendezvous: Rendezvous, rank: int) -> None:
        self._rendezvous, self._rank = rendezvous, rank

    def begin(self, effect: Mean) -> PendingReply:
        return self._rendezvous.begin(self._rank, effect)

    def drain(self) -> None:
        self._rendezvous.gone(self._rank)


class _Means(MeanServer):
    """The first mean gives the initial weights."""

    initial: Callable[[Any], None]

    def on_mean(self, tag: Hashable, result: Averaged) -> None:
        if tag == INITIAL:
            self.initial(result.v)


class ThreadRun:
    """One run. `done`: steps finished by each worker; `models`: what each took home; `records`: the trace.

    `settled`: how many of each worker's latest steps, one after the other, began within half of `near` of the optimum.

    leave_after: steps after which a worker leaves by itself, by rank. die_after: after which it dies, and comes back.
    enough: ends the run.
    begins: is called with the rank before every step, under the lock that `done` changes under.
    """

    def __init__(
        self,
        case: Case,
        servers: int,
        fabric: Fabric,
        *,
        leave_after: Mapping[int, int] | None = None,
        die_after: Mapping[int, int] | None = None,
        enough: Callable[[ThreadRun], bool] = lambda run: False,
        begins: Callable[[int], None] = lambda rank: None,
        work: Work = gradient,
        samples: Callable[[int], int] = lambda rank: 1,
        slice_length: int = 0,
    ) -> None:
        self.case, self.servers = case, servers
        self._leave_after, self._enough, self._begins = leave_after or {}, enough, begins
        self._die_after = dict(die_after or {})
        self._samples = samples
        self._slice_length = 0 if case.make().one_gate else slice_length
        self._workload = LocalSteps(lambda rank, _: SECONDS[rank], work, samples=samples, lr=case.lr)
        self.done, self.settled = [0] * case.workers, [0] * case.workers
        self._base: dict[int, int] = {}  # steps of earlier incarnations, as far as they were told
        self.models: dict[int, Any] = {}
        self.records: list[Record] = []
        self.progress: dict[int, control.Progress] = {}
        self.reason = ""
        self._scheme: Scheme = case.make()
        self._lock = threading.Lock()
        self._outcome: queue.SimpleQueue[str] = queue.SimpleQueue()  # nothing, or what went wrong
        self._rendezvous = Rendezvous(case.workers)
        self._transport_of = fabric()

    def run(self) -> ThreadRun:
        """Until it is over. Raises AssertionError when anything went wrong or anybody is left."""
        before = open_sockets()
        transport = self._transport_of(party.COORDINATOR)
        self._coordinator = self._make_coordinator(transport)
        address = self._coordinator.open()
        threads = self._threads = [self._start(who, address) for who in self._everybody()]
        try:
            problem = self._outcome.get(timeout=DEADLINE_SECONDS)
            assert not problem, problem
        except queue.Empty:
            missing = ", ".join(map(str, self._coordinator.missing()))
            raise AssertionError(f"stalled while {self._coordinator.phase.value}: {self.done}; {missing}") from None
        finally:
            transport.close()
            for thread in threads:  # it grows by those that come back
                thread.join(DEADLINE_SECONDS)
        left = [t for t in threading.enumerate() if t in threads or t.name.startswith("net of")]
        for thread in left:  # on a busy machine a net thread finishes its turn later than `close` waits for it
            thread.join(DEADLINE_SECONDS)
        left = [thread for thread in left if thread.is_alive()]
        assert left == [], "threads are left"
        assert open_sockets() <= before, "sockets are left"
        assert self._outcome.empty(), self._outcome.get()
        return self

    def _everybody(self) -> list[Party]:
        return [party.server(s) for s in range(self.servers)] + [party.worker(r) for r in range(self.case.workers)]

    def _make_coordinator(self, transport: Transport) -> Coordinator:
        return Coordinator(
            transport,
            Node(transport, NumpyMemory()),
            self,
            RunSize(self.case.workers, self.servers),
            RunChoices(
                make_role=lambda plan, place: (self._scheme.Coordinator or Role)(self._scheme, place),
                lay_out=lambda ready, hellos: (lay_out(ready[0].length, len(hellos), self._slice_length), ""),
                choose_allreduce=lambda ready, hellos, servers: Choice("servers", ""),
            ),
            RunRules(),
        )

    def _start(self, who: Party, address: str, incarnation: int = 0) -> threading.Thread:
        transport = self._transport_of(who, incarnation)

        def take_part() -> None:
            try:
                node = Node(transport, NumpyMemory(), timeout_s=DEADLINE_SECONDS)
                session = Session(transport, node, timeout_s=DEADLINE_SECONDS)
                session.hello(address, "cpu", incarnation=incarnation)
                (self._serve if who.kind == "server" else self._train)(who.index, session)
            except Dies:
                transport.close()
                self._threads.append(self._start(who, address, incarnation + 1))
            except BaseException:
                self._outcome.put(f"{who}: {traceback.format_exc()}")
            finally:
                transport.close()

        thread = threading.Thread(target=take_part, name=str(who), daemon=True)
        thread.start()
        return thread

    def _place(
        self, me: int, w: Any, note: Callable[[Record], None] | None, plan: control.Plan, offset: int = 0
    ) -> RoleContext:
        return RoleContext(
            me=me,
            workers=tuple(range(plan.workers)),
            w=w,
            update=plain_sgd(self.case.lr)(DIMENSION),
            seconds_per_step=plan.seconds_per_step,
            note=note,
            offset=offset,
            length=plan.layout.length,
        )

    # ---- a server ----------------------------------------------------------------------------------------
    def _serve(self, server: int, session: Session) -> None:
        session.connect(())
        plan = session.expect(control.Plan)
        slices = plan.layout.of(server)
        box = self._scheme.server(len(plan.layout.holders))

        def hosted(number: int) -> ServedSlice:
            part = plan.layout.slices[number]

            def initial(w: Any) -> None:
                note = session.reports.note if number == slices[0] else None
                mine.role = box(self._scheme, self._place(number, w, note, plan, part.start)) if box else None

            means = _Means(None, self._place(number, None, None, plan))
            means.initial = initial
            mine = ServedSlice(part.stop - part.start, mean_server=means)
            return mine

        session.node.host([hosted(number) for number in slices])
        session.tell(control.Prepared())
        session.serve()

    # ---- a worker ----------------------------------------------------------------------------------------
    def _train(self, rank: int, session: Session) -> None:
        carrier = self._join(rank, session)
        try:
            result: Any = None
            while not (self._may_leave(rank) or session.over.is_set()):
                result = self._step(rank, session, session.node.advance(result))
            session.node.advance(result)  # hand the last result over as well
            session.node.end(soon=False)
        except Stopped:
            pass
        session.leave(session.stop_reason or "steps")
        if carrier is not None:
            carrier.drain()
        holder, model_of = session.wait_for_finish().holder, self._scheme.model_of(self.servers)
        self.models[rank] = final_model(session, model_of, holder, self.case.workers)
        session.done()

    def _join(self, rank: int, session: Session) -> Member | None:
        node = session.node
        session.connect([party.server(s) for s in range(self.servers)])
        if self._scheme.connects_workers(self.servers):
            session.meet_workers()
        session.tell(control.Ready(length=DIMENSION, fingerprint="f", seconds_per_step=SECONDS[rank], optimizer=""))
        plan = session.expect(control.Plan)
        carrier = None if self.servers else self._rendezvous.of(rank)
        node.place(None, plan.layout, carrier)
        if session.late:
            self._come_late(rank, session, plan)
            return carrier
        # Only worker 0 has the right weights; the others must get them from it.
        w0 = W0 if rank == 0 else W0 + 100
        first = node.mean(Mean(w0, tuple(range(plan.workers)), INITIAL, float(rank == 0)))
        node.place(self._role(rank, first.v, session, plan), plan.layout, carrier)
        node.times.reset()
        session.tell(control.Prepared())
        session.expect(control.Go)
        session.reports.begin(lambda: self._progress_of(rank, session))
        return carrier

    def _role(self, rank: int, w: Any, session: Session, plan: control.Plan) -> Role:
        box: type[Role] = self._scheme.worker(len(plan.layout.holders))
        return box(self._scheme, self._place(rank, w, session.reports.note, plan))

    def _come_late(self, rank: int, session: Session, plan: control.Plan) -> None:
        model_of = self._scheme.model_of(self.servers)
        role = come_late(session, model_of, self.case.workers, lambda w: self._role(rank, w, session, plan))
        session.enter(role, plan.layout)
        self._base[rank] = session.expect(control.Go).steps
        session.reports.begin(lambda: self._progress_of(rank, session))

    def _may_leave(self, rank: int) -> bool:
        with self._lock:
            return self.done[rank] >= self._leave_after.get(rank, 1 << 60)

    def _step(self, rank: int, session: Session, effect: Compute | Train) -> Computed | Trained:
        with self._lock:
            self._begins(rank)
            if self.done[rank] >= self._die_after.get(rank, 1 << 60):
                del self._die_after[rank]
                raise Dies
        result: Computed | Trained
        w = effect.w if isinstance(effect, Compute) else effect.x
        is_near = distance(w) < self.case.near / 2
        match effect:
            case Compute():
                result = self._workload.compute(rank, effect, Random(0))
            case Train():
                result = self._workload.train(rank, effect, Random(0))
        session.over.wait(result.seconds)
        with self._lock:
            self.done[rank] += effect.steps
            self.settled[rank] = self.settled[rank] + effect.steps if is_near else 0
            if self._enough(self):
                self._coordinator.stop("enough")
        return result

    def _progress_of(self, rank: int, session: Session) -> control.Progress:
        up, down = session.traffic()
        times, steps = session.node.times, self.done[rank] - self._base.get(rank, 0)
        return control.Progress(
            steps=steps,
            samples=steps * self._samples(rank),
            exchanges=0,
            seconds_computing=steps * SECONDS[rank],
            seconds_waiting=times.waiting,
            seconds_communicating=times.communicating,
            bytes_up=up,
            bytes_down=down,
        )

    # ---- what the coordinator tells ----------------------------------------------------------------------
    def joined(self, who: Party, hello: control.Hello) -> None:
        pass

    def started(self, plan: control.Plan) -> None:
        pass

    def progressed(self, rank: int, progress: control.Progress) -> None:
        self.progress[rank] = progress

    def recorded(self, record: Record) -> None:
        self.records.append(record)

    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None:
        self._outcome.put(f"{who}: {cause}\n{details}")

    def finished(self, reason: str, seconds: float) -> None:
        self.reason = reason
        self._outcome.put("")

    def unheard(self, who: Party, incarnation: int, why: str) -> None:
        self._outcome.put(why)


def open_sockets() -> set[str]:
    """Of this process, by inode; none where nobody can tell. Earlier tests may have left some to a later collection."""
    found: set[str] = set()
    if os.path.isdir("/proc/self/fd"):
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                found.add(os.readlink(f"/proc/self/fd/{fd}"))
    return {name for name in found if name.startswith("socket:")}
