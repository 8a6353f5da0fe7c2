"""The coordinator's end of the control plane: brings a run up, watches it, ends it.

    gathering -> readying -> placing servers -> placing workers -> training -> finishing -> over
        Hello      Ready         Prepared          Prepared                     Saved

Each step waits for a message from every party concerned. Everything runs on the transport's thread; what happens is
told to a Listener.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.membership import Announce, Decision, Enter, Evict, Patience, Refuse, State
from paceline.core.membership import Membership as Members
from paceline.core.role import Place, Role
from paceline.core.trace import Ended, Evaluated, Membership, from_dict
from paceline.live import control, party, verbs
from paceline.live.listener import Listener
from paceline.live.node import Node
from paceline.live.party import Party
from paceline.live.phases import Phase, StopRule
from paceline.live.planning import ChooseMean, LayOut, make_plan, no_update, other_model
from paceline.live.recovery import Recovery, Snapshots
from paceline.live.transport import Envelope, Kind, Transport

TICK_SECONDS = 0.25
STUCK_STEPS = 20.0


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
        lay_out: LayOut,
        choose_mean: ChooseMean,
        seed: int = 0,
        dead_after_s: float = math.inf,
        stuck_after_s: float = math.inf,
        min_workers: int = 1,
        snapshots: Snapshots | None = None,
        absent: Collection[int] = (),
    ) -> None:
        """`lay_out` says which server holds what, and why, from what the workers and the servers said of themselves.

        `choose_mean` says who carries means, from what the workers said, and how many servers there are.
        `dead_after_s`: so long a worker or server may be silent while training goes on. `stuck_after_s`: so long a
        worker may be at one step, or for STUCK_STEPS of its usual ones, whichever is longer. `min_workers`: with
        fewer left after a loss the run ends.
        `snapshots`: what servers that are lost are replaced from; without, a lost server ends the run.
        `absent`: workers, those of the highest ranks, that may come while training goes on.
        """
        self.node = node
        self._transport, self._listener = transport, listener
        self._workers, self._servers = list(map(party.worker, range(workers))), list(map(party.server, range(servers)))
        self._evaluator = [party.EVALUATOR] if evaluator else []
        self._stop_rule, self._make_role, self._seed = stop_rule, make_role, seed
        self._lay_out, self._choose_mean = lay_out, choose_mean
        self.phase = Phase.GATHERING
        self._answers: dict[Party, Any] = {}  # what each party said in this phase
        self._progress: dict[int, control.Progress] = {}  # of each worker, all its lives together
        self._former: dict[int, control.Progress] = {}  # the same without the present life, where it is not the first
        self._absent = {self._workers[rank] for rank in absent}  # they have never been there
        self._beginning = self._workers[: workers - len(absent)]
        self._training = set(self._beginning)
        self._coming: dict[Party, control.Hello] = {}  # newcomers that do not train yet
        self._min_workers = min_workers
        # Workers and servers, once training has started.
        self._members: Members[Party] = Members(
            Patience(dead_s=dead_after_s, stuck_s=stuck_after_s, stuck_steps=STUCK_STEPS)
        )
        self._asked: set[Party] = set()  # where their loops hang
        self._lost = set(self._absent)
        self.barred: set[Party] = set()  # those of them that nobody starts again, or lets in
        others = [*self._workers, *self._evaluator]
        self._snapshots = snapshots
        self._recovery = Recovery(transport, node, listener, self._members, self._servers, others, snapshots)
        self._recovery.departed.update(absent)
        self._reason, self._seconds = "", 0.0

    def open(self) -> str:
        """Begin; returns the address for the others."""
        self._transport.open(self)
        return self._transport.address

    @property
    def samples(self) -> int:
        """Trained by all workers together, as far as reported."""
        return sum(progress.samples for progress in self._progress.values())

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
        if src.kind == "server" and self.phase is Phase.TRAINING:  # it makes no steps
            self._members.progressed(self.node.now(), src, 0, waits=True, step_s=math.inf)
        match envelope.message:
            case control.Hello() as hello if self.phase is not Phase.GATHERING:
                self._came_back(src, hello)
            case control.Ready() as ready if src in self._coming:
                self._is_ready(src, ready)
            case control.Aware(view=view):
                self._carry_out(self._members.acknowledged(self.node.now(), src, view))
            case control.Failed(cause=cause) if src in self._coming:
                self.lost(src, cause)
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
                self._progressed(src, progress)
            case control.Records(lines=lines):
                for line in lines.split("\n"):
                    record = from_dict(json.loads(line))
                    self._recovery.recorded(record)
                    self._listener.recorded(record)
            case control.Judged() as judged:
                self._judged(judged)
            case control.Left(reason=reason, home=home):
                self._left(src, reason, home=home and self.survives(src) and not self._reason)
            case control.Unfit(rank=rank, reason=reason):
                self._put_out(party.worker(rank), reason)
            case control.Beat():
                pass
            case control.Failed(cause=cause, details=details):
                self._listener.failed(src, cause, details)
            case other:
                raise ProtocolError(f"{src} sent {type(other).__name__}")

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        asked = self.node.calls.find(id) is not None or self.node.calls.is_void(id)  # of what is void, nobody was told
        if kind != Kind.REPLY or not asked or max(lengths) > self._plan.layout.length:
            raise ProtocolError(f"{src} sends vectors to the coordinator")
        return self.node.room_for(src, kind, id, lengths, shared)

    def lost(self, src: Party, why: str) -> None:
        if src in self._lost and self._members.state(src) is State.LEFT:
            return  # it has gone home
        if self.survives(src):
            self._carry_out(self._members.lost(self.node.now(), src, self._members.incarnation(src), why))
        elif self.phase is not Phase.OVER and src not in self._lost:
            self._listener.failed(src, f"lost {src}: {why}{self.why_last(src)}", "")

    def survives(self, who: Party) -> bool:
        """Does the run go on without `who`? Or has it already?

        It does without a worker while others train, and where a server can be replaced. Where workers carry means
        themselves, it ends.
        """
        if who.kind == "server":
            return self.phase is Phase.TRAINING and self._recovery.can_replace(who)
        training = self.phase is Phase.TRAINING and who in self._training
        enough = len(self._training) > self._min_workers
        return who in self._lost or (training and enough and self._plan.mean == "servers")

    def _put_out(self, who: Party, why: str) -> None:
        """For good. One whom the run could not do without stays: the servers go on refusing what it sends."""
        if who in self._training and self.survives(who):
            self.barred.add(who)
            self.lost(who, f"{why}; it is not started again")

    def life_of(self, who: Party) -> int:
        """Its present incarnation, or its last."""
        return self._members.incarnation(who)

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
                return [*self._beginning, *self._servers, *self._evaluator]
            case Phase.PLACING_SERVERS:
                return [*self._servers]
            case Phase.READYING | Phase.PLACING_WORKERS:
                return self._beginning
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
                self._worker_hellos = [answers[who] for who in self._beginning]
                self._server_hellos = [answers[who] for who in self._servers]
                self._hellos = answers
                self._tell_all(self._roster())
            case Phase.READYING:
                self._model = answers[self._workers[0]]
                ready = [answers[who] for who in self._beginning]
                fixed = self._snapshots.refuses(ready[0], len(self._servers)) if self._snapshots else "nothing is kept"
                self._plan = make_plan(
                    *(ready, self._worker_hellos, self._server_hellos),
                    lay_out=self._lay_out,
                    choose_mean=self._choose_mean,
                    replaced=not fixed,
                    copied=not fixed and self._snapshots is not None and self._snapshots.copies,
                    absent=len(self._absent),
                )
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

    def _roster(self, late: bool = False) -> control.Roster:
        away = set(self._workers).difference(self._members.here()) if late else self._absent  # the announced are here
        return control.Roster(
            addresses={str(who): hello.address for who, hello in (self._hellos | self._coming).items()},
            hosts={str(who): hello.host for who, hello in (self._hellos | self._coming).items()},
            lives=tuple(self._members.incarnation(who) for who in self._workers) if late else (),
            gone=tuple(sorted(who.index for who in away)),
            lost=tuple(sorted(who.index for who in away & self._lost)),
            coming=tuple(sorted(who.index for who in away & self._coming.keys())),
            view=self._recovery.view,
        )

    def _start(self) -> None:
        self.phase = Phase.TRAINING
        place = Place(
            me=0,
            workers=tuple(range(len(self._workers))),
            w=None,
            update=no_update,
            seed=self._seed,
            seconds_per_step=self._plan.seconds_per_step,
            note=self._listener.recorded,
        )
        self.node.place(self._make_role(self._plan, place))
        for who in sorted(self._absent):
            self.node.gone(who.index)
        self.node.start_clock()
        for who in (*self._beginning, *self._servers):
            self._members.hello(0.0, who, 0)
        self._members.begin(0.0)
        self._look()
        self._listener.started(self._plan)
        self._tell([*self._servers, *self._beginning, *self._evaluator], control.Go())
        self._recovery.plan = self._plan
        if self._snapshots is not None and self._plan.replaced:
            self._snapshots.begin(self._plan)
        if self._stop_rule.seconds is not None:
            self._transport.call_later(self._stop_rule.seconds, lambda: self._stop("seconds"))

    # ---- training ----------------------------------------------------------------------------------------
    def _progressed(self, src: Party, progress: control.Progress) -> None:
        if self.phase is Phase.TRAINING:
            steps = progress.steps - progress.steps_before
            usual = progress.seconds_computing / max(1, steps)
            self._members.progressed(self.node.now(), src, steps, waits=not progress.seconds_at_batch, step_s=usual)
        if src.index in self._former:
            progress = self._former[src.index] + progress
        self._progress[src.index] = progress
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
            slow = {who for who in self._members.half_stuck(self.node.now()) if who.kind == "worker"}
            self._tell(sorted(slow - self._asked), control.Explain())
            self._asked = slow
            self._carry_out(self._members.tick(self.node.now()))
            self._transport.call_later(min(TICK_SECONDS, self._members.patience.dead_s / 4), self._look)

    def _carry_out(self, decisions: Iterable[Decision[Party]]) -> None:
        for decision in decisions:
            match decision:
                case Evict(who=who) if who.kind == "server" and self.survives(who):
                    self._send_home("a server was lost while it came")
                    self._recovery.lost(who, decision.incarnation, decision.reason)
                case Evict(who=who) if self.survives(who):
                    self._evict(decision)
                case Evict(who=who, reason=reason):
                    self._listener.failed(who, f"lost {who}: {reason}{self.why_last(who)}", "")
                case Announce(who=who):
                    self._announce(who, decision.incarnation, decision.view)
                case Enter(who=who):
                    self._enter(who)
                case Refuse(who=who, incarnation=incarnation, reason=reason):
                    self._transport.drop(who, incarnation, reason)

    def why_last(self, who: Party) -> str:
        """Why the run could otherwise go on without it, but ends; for the end of a line."""
        few = who in self._training and 1 < self._min_workers >= len(self._training)
        why = f"--min-workers {self._min_workers} would not be left" if few else self._recovery.exhausted(who)
        return f"; {why}" if why else ""

    def _evict(self, decision: Evict[Party]) -> None:
        """The others go on: they hear of it once, rounds close without it, and what it waited for is dropped."""
        who, why = decision.who, decision.reason
        why += "; its log says where it hangs" if who in self._asked else ""
        self._lost.add(who)
        self._training.discard(who)
        self._recovery.departed.add(who.index)
        newcomer = self._coming.pop(who, None) is not None
        if not (newcomer and self._reason):  # one that came too late to be told anything but that
            before = " before it was back" if newcomer else ""
            here = f"{len(self._training)} of {len(self._workers)} continue"
            record = Membership(at=self.node.now(), party=str(who), event="lost", reason=f"{why}{before}; {here}")
            self._listener.recorded(record)
        self.node.lost(who, why)
        if decision.known:
            self._tell(self._present(), control.Gone(rank=who.index, lost=True, incarnation=decision.incarnation))
            self.node.gone(who.index)
        self._transport.drop(who, decision.incarnation, why)

    def _present(self) -> list[Party]:
        """Who hears of comings and goings."""
        return [*self._servers, *self._evaluator, *sorted(self._training), *self._coming]

    # ---- coming late -------------------------------------------------------------------------------------
    def _came_back(self, src: Party, hello: control.Hello) -> None:
        if src in self._lost:
            self._comes(src, hello)
        elif src.kind == "server" and self._members.state(src) is State.LOST:
            self._listener.joined(src, hello)
            self._hellos[src] = hello
            self._recovery.hello(src, hello.incarnation, self._roster())
        else:
            raise ProtocolError(f"{src} says hello while the run is {self.phase.value}")

    def _comes(self, src: Party, hello: control.Hello) -> None:
        """A later life of a lost worker. It learns where everybody is, and says when it is ready."""
        if self._recovery.under_way:
            self._recovery.afterwards(lambda: self._comes(src, hello))
            return
        if self.phase is not Phase.TRAINING or self._reason or src in self.barred:
            self._tell([src], control.Stop(reason=self._reason or "it was put out of the run"))
            return
        self._carry_out(self._members.hello(self.node.now(), src, hello.incarnation))
        if self._members.state(src) is not State.JOINING:
            return
        self._coming[src] = hello
        self._listener.joined(src, hello)
        self._tell([src], self._roster(late=True))

    def _is_ready(self, src: Party, ready: control.Ready) -> None:
        if self._recovery.under_way:
            self._recovery.afterwards(lambda: self._is_ready(src, ready))
        elif src not in self._coming or self._reason:
            pass  # it is lost again, or too late
        elif other := other_model(src.index, ready, self._model):
            self.lost(src, other)
        else:
            self._carry_out(self._members.ready(self.node.now(), src))

    def _announce(self, who: Party, incarnation: int, view: int) -> None:
        hello = self._hellos[who] = self._coming[who]
        came = control.Came(rank=who.index, incarnation=incarnation, view=view, address=hello.address, host=hello.host)
        self._recovery.came_back(who.index)
        self._tell([other for other in self._present() if other != who], came)
        self.node.came(who.index)

    def _send_home(self, why: str) -> None:
        """All newcomers, since nobody connects them to the server that comes: they may try again."""
        now = self.node.now()
        for who in list(self._coming):
            decisions = self._members.lost(now, who, self._members.incarnation(who), why)
            self._carry_out(decision for decision in decisions if not isinstance(decision, Enter))

    def _enter(self, who: Party) -> None:
        """Everybody reckons with it, so it may begin; unless it was sent home, or told that the run ends."""
        if self._reason or who not in self._coming:
            return
        hello = self._coming.pop(who)
        self._lost.discard(who)
        self._training.add(who)
        rank, now = who.index, self.node.now()
        former = self._former[rank] = self._progress.get(rank, control.NOTHING)
        here = f"{len(self._training)} of {len(self._workers)} train"
        life = "it is new" if who in self._absent else f"life {self._members.incarnation(who) + 1}"
        self._absent.discard(who)
        told = {"event": "returned", "reason": f"{life}; {here}", "device": hello.device, "host": hello.host}
        self._listener.recorded(Membership(at=now, party=str(who), **told))
        for message in (self._plan, control.Go(at=now, samples=self.samples, steps=former.steps)):
            self._tell([who], message)

    def _left(self, src: Party, reason: str, *, home: bool) -> None:
        """`home`: it ends at once, so that from now on nobody can ask it for anything."""
        self._training.discard(src)
        if home:
            self.barred.add(src)
            self._lost.add(src)
            reason += f"; {len(self._training)} of {len(self._workers)} continue"
        now = self.node.now()
        self._listener.recorded(Membership(at=now, party=str(src), event="drained" if home else "left", reason=reason))
        self._recovery.departed.add(src.index)
        self._members.left(now, src)
        if self.phase is Phase.TRAINING and not self._reason:
            life = self._members.incarnation(src) if home else 0
            self._tell(self._present(), control.Gone(rank=src.index, lost=home, incarnation=life))
            self.node.gone(src.index)
        if home:
            self._tell([src], control.Exit())
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

    def _stop(self, reason: str) -> None:
        """Workers are told once; what follows waits until the last of them has left."""
        if self._reason or self.phase is not Phase.TRAINING:
            return
        self._reason, self._seconds = reason, self.node.now()
        self._listener.recorded(Ended(at=self._seconds, reason=reason))
        self._tell([*sorted(self._training), *self._coming], control.Stop(reason=reason))

    def _tell_all(self, message: Any) -> None:
        self._tell([*self._servers, *self._workers, *self._evaluator], message)

    def _tell(self, to: Iterable[Party], message: Any) -> None:
        for who in to:
            with contextlib.suppress(PeerLost):  # told by `lost`; the others must hear all the same
                self._transport.send(who, Envelope(Kind.CONTROL, message))
