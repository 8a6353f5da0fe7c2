"""The coordinator's end of the control plane: brings a run up, watches it, ends it.

    gathering -> readying -> placing servers -> placing workers -> training -> finishing -> over
        Hello      Ready         Prepared          Prepared                     Saved

Each step waits for a message from every party concerned. Everything runs on the transport's thread; what happens is
told to a Listener.
"""

from __future__ import annotations

import contextlib
import enum
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.core.collective import Choice
from paceline.core.errors import ConfigError, PeerLost, ProtocolError
from paceline.core.membership import Decision, Evict, Patience, State
from paceline.core.membership import Membership as Members
from paceline.core.role import Place, Role
from paceline.core.sharding import Layout
from paceline.core.trace import Ended, Evaluated, Membership, Record, from_dict
from paceline.live import control, party, verbs
from paceline.live.node import Node
from paceline.live.party import Party
from paceline.live.recovery import Recovery, Snapshots
from paceline.live.transport import SHARED, TCP, Envelope, Kind, Transport

TICK_SECONDS = 0.25


class Phase(enum.Enum):
    GATHERING = "waiting for everybody to say hello"
    READYING = "waiting for the models"
    PLACING_SERVERS = "placing the servers"
    PLACING_WORKERS = "placing the workers"
    TRAINING = "training"
    FINISHING = "looking at the last model"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Whichever comes first; None is never. `samples` counts over all workers."""

    samples: int | None = None
    seconds: float | None = None
    target_accuracy: float | None = None


class Listener(Protocol):
    """Hears of everything, on the coordinator's thread."""

    def joined(self, who: Party, hello: control.Hello) -> None: ...
    def started(self, plan: control.Plan) -> None: ...
    def progressed(self, rank: int, progress: control.Progress) -> None: ...
    def recorded(self, record: Record) -> None: ...
    def failed(self, who: Party, cause: str, details: str) -> None: ...
    def finished(self, reason: str, seconds: float) -> None: ...


def exchange_by(ways: Collection[str]) -> str:
    """How vectors travel in a run whose parties have these ways; nothing when none of them have to."""
    if SHARED in ways:
        return f"{SHARED} on one host, {TCP} between hosts" if TCP in ways else f"{SHARED} (same host)"
    return ", ".join(sorted(ways))


class Coordinator:
    """Brings up and ends a run of `workers` workers and `servers` servers, with an evaluator or without."""

    def __init__(
        self,
        transport: Transport,
        node: Node,
        listener: Listener,
        *,
        workers: int,
        servers: int,
        evaluator: bool,
        stop_rule: StopRule,
        make_role: Callable[[control.Plan, Place], Role],
        lay_out: Callable[[Sequence[control.Ready], Sequence[control.Hello]], tuple[Layout, str]],
        choose_mean: Callable[[Sequence[control.Ready], Sequence[control.Hello], int], Choice],
        seed: int = 0,
        dead_after_s: float = math.inf,
        snapshots: Snapshots | None = None,
    ) -> None:
        """`lay_out` says which server holds what, and why, from what the workers and the servers said of themselves.

        `choose_mean` says who carries means, from what the workers said, and how many servers there are.
        `dead_after_s`: so long a worker or server may be silent while training goes on.
        `snapshots`: what servers that are lost are replaced from; without, a lost server ends the run.
        """
        self.node = node
        self._transport, self._listener = transport, listener
        self._workers = [party.worker(rank) for rank in range(workers)]
        self._servers = [party.server(shard) for shard in range(servers)]
        self._evaluator = [party.EVALUATOR] if evaluator else []
        self._stop_rule, self._make_role, self._seed = stop_rule, make_role, seed
        self._lay_out, self._choose_mean = lay_out, choose_mean
        self.phase = Phase.GATHERING
        self._answers: dict[Party, Any] = {}  # what each party said in this phase
        self._samples: dict[int, int] = {}
        self._training = set(self._workers)
        # Workers and servers, once training has started.
        self._members: Members[Party] = Members(Patience(dead_s=dead_after_s, stuck_s=math.inf))
        self._lost: set[Party] = set()
        others = [*self._workers, *self._evaluator]
        self._snapshots = snapshots
        self._recovery = Recovery(transport, node, listener, self._members, self._servers, others, snapshots)
        self._reason = ""
        self._seconds = 0.0

    def open(self) -> str:
        """Begin; returns the address for the others."""
        self._transport.open(self)
        return self._transport.address

    @property
    def samples(self) -> int:
        """Trained by all workers together, as far as reported."""
        return sum(self._samples.values())

    @property
    def stopping(self) -> bool:
        """Have the workers been told to stop, and not all left yet?"""
        return bool(self._reason) and self.phase is Phase.TRAINING

    def missing(self) -> list[Party]:
        """Who has not answered in this phase, or not left yet."""
        if self.stopping:
            return sorted(self._training)
        return [who for who in self._concerned() if who not in self._answers]

    def stop(self, reason: str) -> None:
        """End the run; from any thread."""
        self._transport.call_later(0.0, lambda: self._stop(reason))

    # ---- messages ----------------------------------------------------------------------------------------
    def deliver(self, src: Party, envelope: Envelope) -> None:
        verbs.check(src, self.node.me, envelope)
        if envelope.kind != Kind.CONTROL:
            self.node.deliver(src, envelope)
            return
        self._members.heard(self.node.now(), src)
        match envelope.message:
            case control.Hello() as hello if self.phase in (Phase.TRAINING, Phase.FINISHING):
                self._came_back(src, hello)
            case control.Hello() as hello:
                self._listener.joined(src, hello)
                device = hello.device if src.kind == "worker" else ""
                self._listener.recorded(
                    Membership(at=0.0, party=str(src), event="joined", device=device, host=hello.host)
                )
                self._answer(src, hello)
            case control.Prepared() as prepared if self.phase in (Phase.TRAINING, Phase.FINISHING):
                self._recovery.prepared(src, prepared)
            case control.Ready() | control.Prepared() | control.Saved() as answer:
                self._answer(src, answer)
            case control.Progress() as progress:
                self._progress(src, progress)
            case control.Records(lines=lines):
                for line in lines.split("\n"):
                    record = from_dict(json.loads(line))
                    self._recovery.recorded(record)
                    self._listener.recorded(record)
            case control.Judged() as judged:
                self._judged(judged)
            case control.Left(reason=reason):
                self._left(src, reason)
            case control.Beat():
                pass
            case control.Failed(cause=cause, details=details):
                self._listener.failed(src, cause, details)
            case other:
                raise ProtocolError(f"{src} sent {type(other).__name__}")

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        if kind != Kind.REPLY or self.node.calls.find(id) is None or max(lengths) > self._plan.layout.length:
            raise ProtocolError(f"{src} sends vectors to the coordinator")
        return self.node.room_for(src, kind, id, lengths, shared)

    def lost(self, src: Party, why: str) -> None:
        if self.survives(src):
            self._carry_out(self._members.lost(self.node.now(), src, self._members.incarnation(src), why))
        elif self.phase is not Phase.OVER and src not in self._lost:
            self._listener.failed(src, f"lost {src}: {why}", "")

    def survives(self, who: Party) -> bool:
        """Does the run go on without `who`? Or has it already?

        It does without a worker while others train, and where a server can be replaced. Where workers carry means
        themselves, it ends.
        """
        if who.kind == "server":
            return self.phase is Phase.TRAINING and self._recovery.can_replace(who)
        training = self.phase is Phase.TRAINING and who in self._training
        return who in self._lost or (training and len(self._training) > 1 and self._plan.mean == "servers")

    def ended(self, who: Party, why: str) -> None:
        """The process of `who` has ended; from any thread."""
        self._transport.call_later(0.0, lambda: self.lost(who, why))

    def failed(self, error: BaseException) -> None:
        self._listener.failed(self._transport.me, str(error) or repr(error), "")

    # ---- bringing up -------------------------------------------------------------------------------------
    def _concerned(self) -> list[Party]:
        """Who has to answer before the next phase."""
        match self.phase:
            case Phase.GATHERING:
                return [*self._workers, *self._servers, *self._evaluator]
            case Phase.PLACING_SERVERS:
                return [*self._servers]
            case Phase.READYING | Phase.PLACING_WORKERS:
                return [*self._workers]
            case Phase.FINISHING:
                return [who for who in (*self._workers, *self._servers, *self._evaluator) if who not in self._lost]
            case _:
                return []

    def _answer(self, src: Party, answer: Any) -> None:
        self._answers[src] = answer
        while self.phase not in (Phase.TRAINING, Phase.OVER) and not self.missing():
            answers, self._answers = self._answers, {}
            self._next(answers)

    def _next(self, answers: dict[Party, Any]) -> None:
        match self.phase:
            case Phase.GATHERING:
                self.phase = Phase.READYING
                self._worker_hellos = [answers[who] for who in self._workers]
                self._server_hellos = [answers[who] for who in self._servers]
                self._addresses = {str(who): hello.address for who, hello in answers.items()}
                self._hosts = {str(who): hello.host for who, hello in answers.items()}
                self._tell_all(control.Roster(addresses=self._addresses, hosts=self._hosts))
            case Phase.READYING:
                self._plan = self._make_plan([answers[who] for who in self._workers])
                self.phase = Phase.PLACING_SERVERS
                self._tell(self._servers, self._plan)
            case Phase.PLACING_SERVERS:
                self.phase = Phase.PLACING_WORKERS
                self._tell([*self._workers, *self._evaluator], self._plan)
            case Phase.PLACING_WORKERS:
                self._start()
            case Phase.FINISHING:
                self.phase = Phase.OVER
                self._tell_all(control.Exit())
                self._listener.finished(self._reason, self._seconds)
            case _:
                raise AssertionError(self.phase)

    def _make_plan(self, ready: list[control.Ready]) -> control.Plan:
        for rank, answer in enumerate(ready):
            if (answer.fingerprint, answer.length) != (ready[0].fingerprint, ready[0].length):
                raise ConfigError(
                    f"worker {rank} trains another model than worker 0 "
                    f"({answer.length} against {ready[0].length} parameters, or other names or shapes)"
                )
        seconds = tuple(answer.seconds_per_step for answer in ready)
        layout, why = self._lay_out(ready, self._server_hellos)
        mean = self._choose_mean(ready, self._worker_hellos, len(self._servers))
        exchange = exchange_by({way for answer in ready for way in answer.ways})
        fixed = self._snapshots.refuses(ready[0], len(self._servers)) if self._snapshots else "nothing is kept"
        return control.Plan(
            workers=len(self._workers),
            servers=len(self._servers),
            length=ready[0].length,
            layout=layout,
            seconds_per_step=seconds if all(s > 0 for s in seconds) else (),
            optimizer=ready[0].optimizer,
            devices=tuple(hello.device for hello in self._worker_hellos),
            hosts=tuple(hello.host for hello in self._worker_hellos),
            mean=mean.name,
            exchange=exchange,
            notes=tuple(filter(None, (why, mean.reason, exchange and f"exchange: {exchange}"))),
            tensors=ready[0].tensors,
            replaced=not fixed,
            copied=not fixed and self._snapshots is not None and self._snapshots.copies,
        )

    def _start(self) -> None:
        self.phase = Phase.TRAINING
        place = Place(
            me=0,
            workers=tuple(range(len(self._workers))),
            w=None,
            update=_no_update,
            seed=self._seed,
            seconds_per_step=self._plan.seconds_per_step,
            note=self._listener.recorded,
        )
        self.node.place(self._make_role(self._plan, place))
        self.node.start_clock()
        for who in (*self._workers, *self._servers):
            self._members.hello(0.0, who, 0)
        self._members.begin(0.0)
        self._look()
        self._listener.started(self._plan)
        self._tell_all(control.Go())
        self._recovery.plan = self._plan
        if self._snapshots is not None and self._plan.replaced:
            self._snapshots.begin(self._plan)
        if self._stop_rule.seconds is not None:
            self._transport.call_later(self._stop_rule.seconds, lambda: self._stop("seconds"))

    # ---- training ----------------------------------------------------------------------------------------
    def _progress(self, src: Party, progress: control.Progress) -> None:
        self._samples[src.index] = progress.samples
        self._listener.progressed(src.index, progress)
        if self.phase is Phase.TRAINING:
            self._tell([src, *self._evaluator], control.Total(samples=self.samples))
            if self._stop_rule.samples is not None and self.samples >= self._stop_rule.samples:
                self._stop("epochs")

    def _judged(self, judged: control.Judged) -> None:
        at = min(judged.at, self._seconds) if self._seconds else judged.at
        self._listener.recorded(
            Evaluated(at=at, accuracy=judged.accuracy, loss=judged.loss, samples=judged.samples, seconds=judged.seconds)
        )
        if self.phase is Phase.TRAINING:
            self.node.judged(judged.accuracy)
        target = self._stop_rule.target_accuracy
        if target is not None and judged.accuracy >= target:
            self._stop("target accuracy")

    def _look(self) -> None:
        """A few times a second while training goes on: has anybody fallen silent?"""
        if self.phase is Phase.TRAINING:
            self._carry_out(self._members.tick(self.node.now()))
            self._transport.call_later(min(TICK_SECONDS, self._members.patience.dead_s / 4), self._look)

    def _carry_out(self, decisions: Iterable[Decision[Party]]) -> None:
        for decision in decisions:
            if isinstance(decision, Evict) and decision.who.kind == "server" and self.survives(decision.who):
                self._recovery.lost(decision.who, decision.incarnation, decision.view, decision.reason)
            elif isinstance(decision, Evict) and self.survives(decision.who):
                self._evict(decision.who, decision.incarnation, decision.reason)
            elif isinstance(decision, Evict):
                self._listener.failed(decision.who, f"lost {decision.who}: {decision.reason}", "")

    def _evict(self, src: Party, incarnation: int, why: str) -> None:
        """The others go on: they hear of it once, rounds close without `src`, and what it waited for is dropped."""
        self._lost.add(src)
        self._training.discard(src)
        self._recovery.departed.add(src.index)
        here = f"{len(self._training)} of {len(self._workers)} continue"
        record = Membership(at=self.node.now(), party=str(src), event="lost", reason=f"{why}; {here}")
        self._listener.recorded(record)
        gone = control.Gone(rank=src.index, lost=True, incarnation=incarnation)
        self._tell([*self._servers, *self._evaluator, *sorted(self._training)], gone)
        self.node.lost(src, why)
        self.node.gone(src.index)
        self._transport.drop(src, incarnation, why)

    def _left(self, src: Party, reason: str) -> None:
        self._listener.recorded(Membership(at=self.node.now(), party=str(src), event="left", reason=reason))
        self._training.discard(src)
        self._recovery.departed.add(src.index)
        self._members.left(self.node.now(), src)
        if self.phase is Phase.TRAINING and not self._reason:
            self._tell([*self._servers, *self._evaluator, *sorted(self._training)], control.Gone(rank=src.index))
            self.node.gone(src.index)
        if not self._training:
            self._stop(reason)
            self._finish(src)

    def _finish(self, holder: Party) -> None:
        """Nobody trains any more, and `holder` left last."""
        if self._recovery.under_way:  # the last model is not whole yet
            self._recovery.afterwards(lambda: self._finish(holder))
            return
        self.phase = Phase.FINISHING
        self._tell_all(control.Finish(holder=holder.index))

    def _came_back(self, src: Party, hello: control.Hello) -> None:
        if src.kind != "server" or self._members.state(src) is not State.LOST:
            raise ProtocolError(f"{src} says hello while training goes on")
        self._listener.joined(src, hello)
        self._addresses[str(src)], self._hosts[str(src)] = hello.address, hello.host
        self._recovery.hello(src, control.Roster(addresses=dict(self._addresses), hosts=dict(self._hosts)))

    def _stop(self, reason: str) -> None:
        """Workers are told once; what follows waits until the last of them has left."""
        if self._reason or self.phase is not Phase.TRAINING:
            return
        self._reason, self._seconds = reason, self.node.now()
        self._listener.recorded(Ended(at=self._seconds, reason=reason))
        self._tell(sorted(self._training), control.Stop(reason=reason))

    def _tell_all(self, message: Any) -> None:
        self._tell([*self._servers, *self._workers, *self._evaluator], message)

    def _tell(self, to: Iterable[Party], message: Any) -> None:
        for who in to:
            with contextlib.suppress(PeerLost):  # told by `lost`; the others must hear all the same
                self._transport.send(who, Envelope(Kind.CONTROL, message))


def _no_update(w: Any, g: Any, samples: int) -> Any:
    raise AssertionError("the coordinator holds no model")
