"""One scheme after the other: phases that end by steps, seconds, epochs or accuracy, with the model carried over.

    worker i:     phase p:  ask coordinator and servers whether it lasts; tell peers that what i says is of p now
                            the worker's box of p; before each exchange's work, ask the coordinator: go on?
                  told to end:  give the servers x_i;  w <- their answer;  p <- p + 1        (a rendezvous of all)
    server:       phase p:  the server's box of p
                  upon x_i:  i takes no further part in p
                  upon the last x_i:  what waits in open rounds becomes updates;
                             w <- that of p, or sum(n_i x_i) / sum(n_i) where p has no model on servers;
                             p <- p + 1;  answer everybody w
    coordinator:  phase p:  the coordinator's box of p
                  upon "go on?" of i:  once the condition of p holds, END to everybody behind the furthest exchange that
                                       was granted; GO otherwise

Phases are written `bsp until 2 epochs; ssp(staleness=2) until accuracy 0.9 or 60 seconds; esync`; the parameters of a
scheme come from its own section unless they stand here. Steps, seconds and epochs count from the beginning of the
phase: the steps of an average worker, the samples of all, also of those who have left since. The question travels
during the exchange before, so no worker waits for it, but for the one before a phase's first exchange. A phase ends
between two exchanges, after what has been handed over has been answered: nothing is lost and nothing counts twice.
Where workers meet, all end after the same exchange; elsewhere those that are behind end at once. Without servers the
rendezvous is one Mean. Optimizers keep their state: the servers' theirs, each worker its own. But where each worker has
updated a model of its own (gossip, eamsgd) and the next phase has one for all, its optimizer begins anew: several
states would lead to several models.

SpeeDO (Zheng et al. 2015) switches by iterations between "strategies", state carried over; the grammar, the other
conditions and the rendezvous are ours. Where one phase keeps its model on workers, evaluation looks there in all.

Use it to begin synchronously and go on with fewer waits, or the other way round at the end. Not for gossip schemes in a
row, which is refused; what these still have on its way when their phase ends is dropped, also where they come again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from paceline.core.effects import EVERY_BIT, SERVERS, Call, Effect, Mean, Reply, Tell
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.message import STATE, Nature, message
from paceline.core.paramserver.gated_server import ClockedServer, settles
from paceline.core.paramserver.peer_check import REFUSED
from paceline.core.phases.grammar import Phase, parse
from paceline.core.phases.phase_end import Answer, GoOn, Granting, PermissionToGoOn, PhaseEntered
from paceline.core.phases.phase_role import Inner
from paceline.core.role import Remembering, Role, RoleContext
from paceline.core.samples.sample_leases import SampleRanges
from paceline.core.scheme import ModelOf, Paper, Scheme, make, parameter, scheme
from paceline.core.trace import Decided
from paceline.core.validation import bounds
from paceline.core.vector import is_finite, weighted_mean


@message("hybrid.Ended")
class PhaseEnded:
    """`phase` is over for me; its model as I know it, and what that counts."""

    phase: bounds.Count
    w: bounds.Whole
    weight: bounds.Weight


@message("hybrid.Begin")
class PhaseBegin:
    """The next phase begins, from `w`."""

    w: bounds.Whole


EARLY_MAX = 256
"""Messages that are kept of a peer which is in the next phase already; it can be so for as long as an answer takes."""
GONE, CAME = object(), object()
"""Stand among what peers have said early: then that peer left, or came again."""


def _check(text: str) -> None:
    for phase in parse(text):
        if phase.scheme == "hybrid":
            raise ValueError("a phase cannot be made of phases: write them one after the other")
        own = make(phase.scheme, dict(phase.parameters))
        if own.composite:
            raise ValueError(f"a phase is one scheme, and {own.name} is made of several")


@scheme(
    "hybrid",
    summary="phases of schemes, switched by steps, seconds, epochs or accuracy",
    paper=Paper(
        key="zheng2015speedo",
        authors="Zheng, Zhongyang and Jiang, Wenrui and Wu, Gang and Chang, Edward Y.",
        title="SpeeDO: Parallelizing Stochastic Gradient Descent for Deep Convolutional Neural Network",
        venue="NIPS Workshop on Machine Learning Systems (LearningSys)",
        year=2015,
    ),
)
class Hybrid(Scheme):
    phases: str = parameter(
        "bsp until 100 steps; esync", "schemes, each until when: 'A until 2 epochs; B'", check=_check
    )
    epoch_samples: int = parameter(0, "samples an epoch has; 0: as many as the training set", low=0)

    composite = True
    coordinator_counts = True

    @functools.cached_property
    def parsed(self) -> tuple[Phase, ...]:
        return parse(self.phases)

    @functools.cached_property
    def schemes(self) -> tuple[Scheme, ...]:
        return tuple(make(phase.scheme, dict(phase.parameters)) for phase in self.parsed)

    def in_turn(self) -> tuple[Scheme, ...]:
        return self.schemes

    def check(self, workers: int, servers: int) -> None:
        for own in self.schemes:
            own.check(workers, servers)
        for one, next_one in itertools.pairwise(self.schemes):
            if one.needs_peers and next_one.needs_peers:
                raise ConfigError(
                    f"hybrid: {one.name} and {next_one.name} both gossip: put another scheme between them"
                )

    def check_batch_limits(self, limits: Sequence[int]) -> None:
        for own in self.schemes:
            own.check_batch_limits(limits)

    def completed(self, sections: Mapping[str, Mapping[str, Any]], train_samples: int) -> Scheme:
        phases = [
            dataclasses.replace(phase, parameters={**sections.get(phase.scheme, {}), **phase.parameters})
            for phase in self.parsed
        ]
        samples = self.epoch_samples or train_samples
        return dataclasses.replace(self, phases="; ".join(map(str, phases)), epoch_samples=samples)

    def unseen(self, worker: Role) -> str:
        assert isinstance(worker, Inner)
        after = self.parsed[worker.phase]
        later = ", ".join(phase.scheme for phase in self.parsed[worker.phase + 1 :])
        return f"{later}, after {after}" if later else ""

    def model_of(self, servers: int) -> ModelOf:
        kinds = {own.model_of(servers) for own in self.schemes}
        return "servers" if kinds == {"servers"} else max(kinds - {"servers"})  # the mean suits "any worker" as well

    def nature(self, message: type) -> Nature:
        return STATE if any(own.nature(message) == STATE for own in self.schemes) else super().nature(message)

    def natures(self, servers: int) -> tuple[set[Nature], set[Nature]]:
        ups, downs = zip(*[own.natures(servers) for own in self.schemes], strict=True)
        return set().union(*ups), set().union(*downs)

    def uses_mean(self, servers: int) -> bool:
        return servers == 0 or any(own.uses_mean(servers) for own in self.schemes)

    @property
    def means_at_once(self) -> int:  # type: ignore[override]
        return max(own.means_at_once for own in self.schemes)

    @property
    def trains_locally(self) -> bool:
        return any(own.trains_locally for own in self.schemes)

    @property
    def mixes_steps(self) -> bool:  # type: ignore[override]
        return any(own.mixes_steps for own in self.schemes)

    @property
    def one_gate(self) -> bool:
        return any(own.one_gate for own in self.schemes)

    @property
    def computes(self) -> bool:
        return any(own.computes for own in self.schemes)

    @property
    def needs_peers(self) -> bool:  # type: ignore[override]
        return any(own.needs_peers for own in self.schemes)

    class Worker(PermissionToGoOn):
        transient = ("ended", "counts", "early", "at", "came_in")
        servers = 1

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            self.ended = False  # this phase, for this worker
            self.counts = True  # among the models of all workers
            self.early: list[tuple[int, Any]] = []  # what peers say that are in the next phase already
            self.at: dict[int, int] = {}  # the phase of what each peer says, once it has told
            self.came_in = 0  # until then: the phase that this worker came in
            super().__init__(scheme, place)

        def box(self, scheme: Scheme) -> type[Role]:
            return scheme.worker(self.servers)

        def run(self) -> Generator[Effect, Any, None]:
            while True:
                if self.ended:  # as one was that this newcomer follows
                    yield from self.inner.finish(self.now)
                else:
                    yield from self.go_on()
                    self.ended = True
                w, alone = (yield from self.meet()), self.inner.updates_alone
                early, self.early = self.early, []
                said = self.begin_without_news(early, w)
                if alone and not self.inner.updates_alone and isinstance(self.update, Remembering):
                    self.update.reset()
                self.enter()
                self.ended = False
                said += self.heard_early(early)
                for effect in said:
                    with contextlib.suppress(PeerLost):  # it is gone, and what it is told with it
                        yield effect

        def begin_without_news(self, early: list[tuple[int, Any]], w: Any) -> list[Tell | Reply]:
            """Begins the next phase with those who were there before what `early` says of them."""
            left, self.left = self.left, self.left - {src for src, what in early if what in (GONE, CAME)}
            said = self.begin(self.now, self.phase + 1, w)
            self.left = left
            return said

        def heard_early(self, early: list[tuple[int, Any]]) -> list[Tell | Reply]:
            """Lets the new role hear what came before it; whoever has left since waits for no answer."""
            said: list[Tell | Reply] = []
            for at, (src, what) in enumerate(early):
                if what is GONE:
                    said += self.inner.on_worker_left(self.now, src)
                elif what is CAME:
                    said += self.inner.on_worker_joined(self.now, src)
                else:
                    waits = (src, GONE) not in early[at:]
                    answers = self.inner.on(self.now, src, what)
                    said += [one for one in answers if waits or not (isinstance(one, Reply) and one.to == src)]
            return said

        def meet(self) -> Generator[Effect, Any, Any]:
            """Waits for the others at the end of a phase; returns w of the next phase.

            The servers average the workers' models, unless the phase kept its model on the servers.
            """
            w, weight = self.inner.model()
            if self.scheme.schemes[self.phase].model_of(self.servers) == "servers":
                weight = 0.0  # the servers know better
            return (yield Call(SERVERS, PhaseEnded(phase=self.phase, w=w, weight=weight))).w

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            self.now = now
            at = self.at.get(src, self.came_in)
            match message:
                case PhaseEntered(phase=phase):
                    self.at[src] = phase
                case _ if at == self.phase:
                    yield from self.inner.on(now, src, message)
                case _ if at > self.phase and sum(other == src for other, _ in self.early) < EARLY_MAX:
                    self.early.append((src, message))

        def model(self) -> tuple[Any, float]:
            w, weight = super().model()
            return w, weight if self.counts else 0.0

        def leave(self, now: float) -> Iterator[Tell | Reply]:
            self.counts = self.scheme.schemes[self.phase].needs_peers  # who gossips hands over what it counts
            yield from super().leave(now)

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.news(rank, GONE)
            yield from super().on_worker_left(now, rank)

        def news(self, rank: int, what: object) -> None:
            """Notes what has become of a peer among what it has said early, for the role of the next phase."""
            if any(src == rank for src, _ in self.early):
                self.early.append((rank, what))

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.news(rank, CAME)
            if self.scheme.schemes[self.phase].needs_peers:
                yield Tell(rank, PhaseEntered(phase=self.phase))
            yield from super().on_worker_joined(now, rank)

        def join_state(self) -> dict[str, Any]:
            return {"phase": self.phase, "ended": self.ended, "left": sorted(self.left), **self.inner.join_state()}

        def load_join_state(self, shown: Mapping[str, Any]) -> None:
            self.came_in = shown["phase"]
            self.left = set(shown["left"]) - {self.me}
            self.begin(self.now, shown["phase"], self.w)
            self.ended = shown["ended"]
            self.inner.load_join_state(shown)

    class Equals(Worker):
        servers = 0

        def meet(self) -> Generator[Effect, Any, Any]:
            w, weight = self.inner.model()
            return (yield Mean(w, self.workers, tag=f"hybrid/{self.phase}", weight=weight, series=EVERY_BIT)).v

    class Server(Inner):
        transient = ("start", "ended", "knows")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.start = place.w  # of this phase
            self.ended: dict[int, tuple[Any, float]] = {}

        def box(self, scheme: Scheme) -> type[Role] | None:
            return scheme.server(1)

        def begin(self, now: float, phase: int, w: Any) -> list[Tell | Reply]:
            done = self.state_dict()
            said = super().begin(now, phase, w)
            self.load_state_dict(done)  # a phase adds its samples to those before
            return said

        def state_dict(self) -> dict[str, Any]:
            """Returns which samples are in the model, if the servers of all phases know those of their own."""
            before = self.inner
            return {"done": list(before.done)} if self.knows and isinstance(before, ClockedServer) else {}

        def load_state_dict(self, tables: dict[str, Any]) -> None:
            if "done" in tables and isinstance(self.inner, ClockedServer):
                self.inner.done = SampleRanges(tables["done"])

        @functools.cached_property
        def knows(self) -> bool:
            return all(settles(own, 1) for own in self.scheme.schemes)

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case _ if src in self.left:
                    return  # what was still on its way changes nothing
                case PhaseEntered(phase=phase):
                    yield Reply(src, Answer(go=phase == self.phase))
                case PhaseEnded() if src in self.ended:
                    return  # asked again after a restart, and answered with the others
                case PhaseEnded(phase=phase) if phase < self.phase:
                    yield Reply(src, PhaseBegin(w=self.start))
                case PhaseEnded() if self.phase + 1 == len(self.scheme.parsed):
                    return  # nothing comes after the last phase, whatever a worker says
                case PhaseEnded(w=w, weight=weight):
                    # One model that is not finite would make that of all so: it counts nothing.
                    self.ended[src] = (w * weight, weight) if self.is_sound(now, src, w) else (self.start, 0.0)
                    yield from self.inner.on_worker_left(now, src)
                    if self.gate is not None:
                        self.gate.came(src)  # for the check it has not left: it goes on in the next phase
                    yield from self.change(now)
                case _:
                    yield from self.inner.on(now, src, message)

        def is_sound(self, now: float, src: int, w: Any) -> bool:
            sound = is_finite(w)
            if not sound and self.note:
                why = "not finite: its model at the end of a phase has NaN or infinity"
                self.note(Decided(at=now, party=f"server {self.me}", rank=src, verdict=REFUSED, reason=why))
            return sound

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            if rank in self.ended:
                self.left.add(rank)
                self.ended.pop(rank)
            else:
                yield from super().on_worker_left(now, rank)
            yield from self.change(now)

        def change(self, now: float) -> Iterator[Tell | Reply]:
            """Once all that take part have ended the phase."""
            if not self.ended or len(self.ended) < len(self.workers) - len(self.left):
                return
            yield from self.inner.finish(now)
            ended, self.ended = self.ended, {}
            weight = sum(weight for _, weight in ended.values())
            if weight:
                total = functools.reduce(lambda a, b: a + b, (w for w, counts in ended.values() if counts))
                self.w = weighted_mean(total, weight)
            self.start = self.w
            yield from self.begin(now, self.phase + 1, self.start)
            for rank in ended:
                yield Reply(rank, PhaseBegin(w=self.start))

    class Coordinator(Inner):
        def __init__(self, scheme: Any, place: RoleContext) -> None:
            self.at = dict.fromkeys(place.workers, 0)  # phase of each worker
            super().__init__(scheme, place)

        def box(self, scheme: Scheme) -> type[Role] | None:
            return scheme.Coordinator

        def begin(self, now: float, phase: int, w: Any) -> list[Tell | Reply]:
            own = self.scheme
            self.granting = Granting(now, own.parsed[phase].until, own.epoch_samples, self.workers)
            return super().begin(now, phase, w)

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case _ if src in self.left:
                    return
                case PhaseEntered(phase=phase):
                    if phase == self.phase + 1 < len(self.scheme.parsed) and self.granting.is_over:
                        yield from self.begin(now, phase, None)
                    self.at[src] = min(phase, self.phase)
                    yield Reply(src, Answer(go=phase == self.phase))
                case GoOn(phase=phase):
                    yield Reply(src, Answer(go=phase == self.phase and self.may_go_on(now, src, message)))
                case _ if self.at[src] == self.phase:
                    yield from self.inner.on(now, src, message)

        def on_evaluation(self, now: float, accuracy: float) -> Iterator[Tell | Reply]:
            self.granting.accuracy = max(self.granting.accuracy, accuracy)
            yield from self.inner.on_evaluation(now, accuracy)

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.granting.drop(rank)
            yield from super().on_worker_left(now, rank)

        def may_go_on(self, now: float, src: int, asked: GoOn) -> bool:
            granting, known = self.granting, self.granting.end
            members = max(1, len(self.workers) - len(self.left))
            go = granting.may_go_on(now, src, asked, members)
            if self.note and known is None and granting.end is not None:
                verdict = f"{self.scheme.parsed[self.phase].scheme} ends"
                self.note(Decided(at=now, party="coordinator", rank=src, verdict=verdict, reason=granting.why))
            return go
