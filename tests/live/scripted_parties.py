"""A coordinator, and parties that follow a script, on one hub."""

from __future__ import annotations

import math
import queue
from collections.abc import Iterator
from typing import Any

from paceline.core.collective import Choice
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.lifecycle import RunPhase, RunRules, RunSize, StopRule
from paceline.core.coordination.party import COORDINATOR, EVALUATOR, Party, server, worker
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.effects import Reply
from paceline.core.role import Role, RoleContext
from paceline.core.sharding import lay_out
from paceline.core.trace import Ended, Record
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.planning import RunChoices
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import NumpyMemory, Recorder, net_threads, take
from tests.live.node_fixture import Said

W0, W1, S0 = worker(0), worker(1), server(0)


class Ears:
    """Keeps what the coordinator tells."""

    def __init__(self) -> None:
        self.told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.records: list[Record] = []

    def joined(self, who: Party, hello: control.Hello) -> None:
        self.told.put(("joined", who))

    def started(self, plan: control.Plan) -> None:
        self.told.put(("started", plan))

    def progressed(self, rank: int, progress: control.Progress) -> None:
        self.told.put(("progressed", (rank, progress.samples)))

    def recorded(self, record: Record) -> None:
        self.records.append(record)

    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None:
        self.told.put(("failed", (who, cause, details)))

    def finished(self, reason: str, seconds: float) -> None:
        self.told.put(("finished", reason))

    def unheard(self, who: Party, incarnation: int, why: str) -> None:
        self.told.put(("unheard", (who, incarnation, why)))


class Counting(Role):
    """A coordinator's box that knows who is gone."""

    gone_ranks: tuple[int, ...] = ()

    def on(self, now: float, src: int, message: Any) -> Iterator[Reply]:
        yield Reply(src, Said(v=message.v, n=len(self.gone_ranks)))

    def on_worker_left(self, now: float, rank: int) -> Iterator[Reply]:
        self.gone_ranks += (rank,)
        yield from ()


class Company:
    """A coordinator and everybody else on one hub; a test says what each of them says."""

    def __init__(
        self,
        workers: int = 2,
        servers: int = 1,
        evaluator: bool = True,
        stop_rule: StopRule | None = None,
        allreduce: str = "ring",
        dead_after_s: float = math.inf,
        stuck_after_s: float = math.inf,
        min_workers: int = 1,
        snapshots: Snapshots | None = None,
        not_started: tuple[int, ...] = (),
        model_on_servers: bool = False,
    ) -> None:
        """`not_started` of the workers say nothing before a test lets them."""
        self.hub, self.ears = Hub(), Ears()
        self.everybody = [server(s) for s in range(servers)] + [worker(r) for r in range(workers)]
        self.everybody += [EVALUATOR] if evaluator else []
        self.everybody = [who for who in self.everybody if who.kind != "worker" or who.index not in not_started]
        self.workers = [who for who in self.everybody if who.kind == "worker"]
        self.heard = {who: Recorder() for who in self.everybody}
        self.escaped: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        transport = self.hub.transport(COORDINATOR, self.escaped.put)
        self.coordinator = Coordinator(
            transport,
            Node(transport, NumpyMemory()),
            self.ears,
            RunSize(workers, servers, evaluator, not_started),
            RunChoices(
                make_role=self._role,
                lay_out=lambda ready, hellos: (lay_out(ready[0].length, len(hellos), 4), "a reason"),
                choose_allreduce=lambda ready, hellos, servers: Choice(
                    allreduce, f"{len(hellos)} workers, {servers} servers"
                ),
            ),
            RunRules(
                stop=stop_rule or StopRule(),
                seed=5,
                dead_after_s=dead_after_s,
                stuck_after_s=stuck_after_s,
                min_workers=min_workers,
                model_on_servers=model_on_servers,
            ),
            snapshots,
        )
        assert self.coordinator.open() == "hub:coordinator"
        for who in self.everybody:
            self.hub.transport(who).open(self.heard[who])

    def _role(self, plan: control.Plan, place: RoleContext) -> Role:
        self.plan, self.place = plan, place
        return Counting(None, place)

    def say(self, who: Party, message: Any, kind: Kind = Kind.CONTROL) -> None:
        member = self.hub.find(who)
        assert member is not None
        member.send(COORDINATOR, Envelope(kind, message, 1 if kind is Kind.CALL else 0))

    def kill(self, who: Party) -> None:
        """Its connections close, as those of a process that is killed."""
        member = self.hub.find(who)
        assert member is not None
        member.close()

    def hears(self, who: Party) -> Any:
        src, message = self.heard[who].next()
        assert src == COORDINATOR
        return message

    def all_hear(self, kind: type, among: list[Party] | None = None) -> None:
        for who in among or self.everybody:
            assert isinstance(self.hears(who), kind)

    def all_leave(self, reason: str) -> None:
        """The workers leave in their order, and who is still there is notified of each, for its last exchange."""
        for who in self.workers:
            self.say(who, control.Left(reason=reason))
        for who in self.everybody:
            before = self.workers[: self.workers.index(who)] if who in self.workers else self.workers
            for other in before:
                message = self.hears(who)
                assert isinstance(message, control.WorkerLeft)
                assert (message.rank, message.lost) == (other.index, False)

    def told(self, what: str) -> Any:
        """What goes with the next `what`; other things told before it are passed over."""
        while True:
            kind, value = take(self.ears.told)
            if kind == what:
                return value

    def gone(self) -> tuple[int, ...]:
        """Whom the coordinator's box does not reckon with."""
        role = self.coordinator.node.role
        assert isinstance(role, Counting)
        return role.gone_ranks

    def settled(self) -> None:
        """Everything said so far has been heard."""
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        member = self.hub.find(COORDINATOR)
        assert member is not None
        member.call_later(0.0, lambda: done.put(None))
        take(done)

    def hello(self) -> None:
        for who in self.everybody:
            self.say(who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu"))
        self.all_hear(control.Roster)

    def train(self) -> None:
        """Everything up to Go."""
        self.hello()
        for who in self.workers:
            self.say(who, ready())
        for who in self.everybody:
            self.hears(who)
            if who != EVALUATOR:
                self.say(who, control.Prepared())
        self.all_hear(control.Go)

    def close(self) -> None:
        for who in [*self.heard, COORDINATOR]:
            member = self.hub.find(who)
            if member is not None:
                member.close()
        assert net_threads() == []


def ready(fingerprint: str = "f", length: int = 10, seconds: float = 0.5) -> control.Ready:
    return control.Ready(length=length, fingerprint=fingerprint, seconds_per_step=seconds, optimizer="sgd")


def progress(samples: int) -> control.Progress:
    return control.Progress(
        steps=1,
        samples=samples,
        exchanges=1,
        seconds_computing=0,
        seconds_waiting=0,
        seconds_communicating=0,
        bytes_up=0,
        bytes_down=0,
    )


def judged(accuracy: float, at: float = 0.0) -> control.EvaluationReport:
    return control.EvaluationReport(at=at, samples=0, accuracy=accuracy, loss=1.0, seconds=0.1)


def finish(company: Company, reason: str) -> None:
    """Everybody follows a Stop to the end."""
    for who in company.workers:
        message = company.hears(who)
        while isinstance(message, control.Total):
            message = company.hears(who)
        assert message == control.Stop(reason=reason)
    company.settled()
    assert company.coordinator.stopping
    company.all_leave(reason)
    company.all_hear(control.Finish)
    for who in company.everybody[1:]:
        company.say(who, control.Saved())
    company.settled()
    assert company.coordinator.phase is RunPhase.FINISHING
    assert company.coordinator.missing() == company.everybody[:1]
    company.say(company.everybody[0], control.Saved())
    company.all_hear(control.Exit)
    assert company.told("finished") == reason
    assert [record.reason for record in company.ears.records if isinstance(record, Ended)] == [reason]
