"""Decoupled DiLoCo: learners never wait; a synchroniser merges each fragment of the model from those that are there.

    worker m:       repeat  theta_m <- InnerOpt(theta_m)            one step; c_tokens, c_steps of every fragment grow
                    at its turn t, with p = t mod P:
                        send Delta_m,p = Theta_p - theta_m,p, c_tokens, c_steps
                        tau more steps, while the answer travels
                        theta_m,p <- the answer;  c_tokens, c_steps of p <- 0
    server:         at turn t, when K learners have sent fragment p = t mod P, and the grace window is over:
                        w_m <- c_tokens (c_tokens / c_steps)        for m in M_t, those that came
                        Delta_p <- sum(w_m Delta_m,p) / sum(w_m)
                        v_p <- mu v_p + Delta_p;  Theta_p <- Theta_p - lr (Delta_p + mu v_p)     (OuterOpt, Nesterov)
                        answer Theta_p to all of M_t;  t <- t + 1

Decoupled DiLoCo Team 2026, arXiv 2604.21428. Workers are its learners, servers its synchroniser. We had the abstract
and what others write about the text, not the text: from these are H = P = 24, tau = 2, K = 1, the weights w, and a
window that takes up the slack of the overlap, at most a safety margin of it. What follows is our reading.

Turns: there is one every H / P steps of the fastest learner. A learner of speed v makes max(1, floor(v / v_max H / P))
steps between two turns (`dynamic`), so that all meet at each turn. The paper's synchroniser fetches the fragment when
it wants it; here learners send it. What comes too late for its turn counts as if it had been in the
last merge of p: with W the weights in it, C = w_m / (W + w_m) (Delta_m,p - Delta_p);  Delta_p <- Delta_p + C;
v_p <- v_p + C;  Theta_p <- Theta_p - lr (1 + mu) C;  W <- W + w_m.

A learner whose exchanges take several turns, because it or its link is slow, would meet some fragments only: with two
turns each, the even ones. So a fragment that has missed two of its turns goes first, as one that comes late.
Grace window: with a `grace` of gamma it ends when a learner of M_t has made ceil(gamma tau) of its tau steps, so it is
as long as the learner's own step time allows, and the answer has the other steps to travel. It ends early when
everybody has come. With tau = 0 there is no slack and so no window: a learner waits for the quorum.
Quorum: if the window ends before K have come, the learner goes on alone. Its Delta is kept for the merge, and the
answer is Theta_p - (what of its own is kept), so it loses nothing and nothing counts twice. Its next turn has the same
fragment. Of fewer than K learners that take part, all are enough.
Overlap: the answer overwrites the fragment, as in the paper. What the steps between its sending and its answer have
done to that fragment, up to tau of them, is in no model, though they count as trained.
Fragments are balanced: P runs of consecutive parameters of equal length. (The paper packs tensors into fragments of
about equal size.) Each server is the synchroniser of its part of every fragment, and may see another M_t than others.
Return: a restarted learner begins with the servers' Theta and without optimizer state. One that was suspended still has
old theta and old state. Its Delta counts as any late one. If more than P turns have passed, it then sends what it has
of the other fragments, too, takes all of Theta and clears its optimizer's state (in the paper it takes both from
another learner). So does a learner at its first turn, if it is that slow. After a Delta that is not finite nothing more
is sent: the steps since the last message are discarded. They are reported, and count as dropped.
Momentum: late Deltas act as momentum of their own (Mitliagkas et al. 2016, arXiv 1605.09774). At a local learning rate
near the largest that the job bears, stalls can make the model swing with DiLoCo's mu = 0.9. So the default is 0.5.
Left out: radial-directional averaging, which averages norms and directions apart. So the more learners, the shorter the
mean of unlike Deltas: a larger lr may be needed.

Use it where workers differ in speed, fail and come back. On a few equal, reliable machines diloco has less noise. With
a quorum of all, tau = 0, one fragment, dynamic = false, mu = 0.9 and batches of one size it is diloco.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Collection, Generator, Iterator
from dataclasses import replace
from typing import Any, ClassVar

from paceline.core.adaptive.step_times import Ranked, Smoothing
from paceline.core.effects import KEEP, RESET, SERVERS, Call, Effect, Reply, Start, Tell, Ticket, Wait
from paceline.core.errors import ConfigError
from paceline.core.local.local_sgd import Trainer
from paceline.core.local.pending_fragment import PendingFragment
from paceline.core.message import INCREMENT, STATE, Nature, keyword_record, message
from paceline.core.paramserver.async_server import ArrivalServer
from paceline.core.paramserver.gated_server import Pull, some
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.trace import Decided
from paceline.core.validation import bounds
from paceline.core.vector import cut, is_finite, splice

SPEED = Smoothing("median", 3)
"""Of a learner's turns. A turn may be one step: by one lucky step it would be the fastest, and turns come too often."""


@keyword_record
class LearnerMessage:
    """Message `clock` of a learner. `samples`: those trained since its last one, of all fragments."""

    clock: bounds.Clock
    samples: bounds.Samples


@message("decoupled.Fragment")
class LearnerFragment(LearnerMessage):
    """Carries a learner's `delta` of the fragment of turn `turn`, which begins at element `offset` of the model.

    `tokens` and `steps`: c_tokens and c_steps of that fragment. `speed`: steps a second. `alone`: there is no overlap,
    so it wants its answer at once. `series`: number of the fragment. Answered by MergedFragment.
    """

    carries: ClassVar[Nature] = INCREMENT

    delta: bounds.Fragment
    offset: bounds.Elements
    series: bounds.Count
    turn: bounds.Count
    tokens: bounds.Samples
    steps: bounds.Count
    speed: bounds.Speed
    alone: bool = False


@message("decoupled.Due")
class OverlapOver:
    """Tells that the window of exchange `exchange` of this learner is over: it wants its answer now."""

    exchange: bounds.Count


@message("decoupled.Discarded")
class StepsDiscarded(LearnerMessage):
    """Reports that a learner discards what it has trained since its last message. Answered by WholeModel."""


@message("decoupled.Merged")
class MergedFragment:
    """Answers a LearnerFragment: `theta` of that fragment, the next turn, and the `steps` to make until then."""

    carries: ClassVar[Nature] = STATE

    theta: bounds.Fragment
    series: bounds.Count
    version: bounds.Count
    turn: bounds.Count
    steps: bounds.Count
    samples_seen: bounds.Count = 0


@message("decoupled.Model")
class WholeModel:
    """Answers a Pull or a StepsDiscarded: all of Theta, the turn that is next, and the `steps` to make until then."""

    carries: ClassVar[Nature] = STATE

    w: bounds.Whole
    version: bounds.Count
    turn: bounds.Count
    steps: bounds.Count
    samples_seen: bounds.Count = 0


@scheme(
    "decoupled",
    summary="DiLoCo whose learners never wait: merges by quorum and grace window, fragment by fragment",
    paper=Paper(
        key="douillard2026decoupled",
        authors="Douillard, Arthur and Rush, Keith and Donchev, Yani and Charles, Zachary and others",
        title="Decoupled DiLoCo for Resilient Distributed Pre-training",
        venue="arXiv 2604.21428",
        year=2026,
        url="https://arxiv.org/abs/2604.21428",
    ),
)
class Decoupled(Scheme):
    h: int = parameter(24, "H: local steps of the fastest learner between two merges of a fragment", low=1)
    fragments: int = parameter(4, "P: parts of the model, merged in turn", low=1)
    tau: int = parameter(2, "tau: local steps during which an exchange may be on its way; 0: learners wait", low=0)
    quorum: int = parameter(1, "K: learners that make a merge; 0: all that take part", low=0)
    grace: float = parameter(
        0.5, "share of the overlap for which a merge waits for further learners", low=0.0, high=1.0
    )
    outer_lr: float = parameter(0.7, "lr: outer learning rate", low=0.0)
    outer_momentum: float = parameter(0.5, "mu: outer Nesterov momentum", low=0.0, high=0.999)
    dynamic: bool = parameter(True, "slow learners make fewer steps a turn; otherwise all make H / P")
    memory: str = parameter(
        "keep", "what an exchange does to the local optimizer's memory: keep or reset it", choices=(KEEP, RESET)
    )

    trains_locally = True
    answers_early = True
    round_steps = "h"

    @property
    def between(self) -> int:
        return self.h // self.fragments

    def with_round(self, steps: int, given: Collection[str]) -> Scheme:
        p = self.fragments  # servers keep something of each, and a resumed run may be longer
        between = max(self.tau + 1 if "tau" in given else 2, steps // p)  # without overlap a learner merges alone
        return replace(self, h=min(self.h, between * p), tau=min(self.tau, between - 1))

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        if self.h % self.fragments:
            raise ConfigError(f"decoupled.h = {self.h} must be a multiple of decoupled.fragments = {self.fragments}")
        if self.tau >= self.between:
            raise ConfigError(
                f"decoupled.tau = {self.tau}: a fragment must be back before the next one leaves, "
                f"{self.between} steps later; take less"
            )
        if self.quorum > workers:
            raise ConfigError(f"decoupled.quorum = {self.quorum}: there are {workers} workers; 0 means all of them")

    class Worker(Trainer):
        """A learner. `w`: Theta as it was answered last; `x`: theta_m; `turn` and `steps`: as in the last answer.

        tokens, made: samples and steps so far, and `since` the same numbers at the last answer for each fragment.
        met_at: the turn that was next at the last answer for each fragment.
        """

        goes_back = True
        saved = ("w", "x", "turn", "steps", "speed", "tokens", "made", "reported", "since", "met_at", "ahead")
        transient = ("parts", "sent", "ticket")
        steps = turn = tokens = made = reported = 0
        speed = 0.0

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.x: Any = place.w
            self.parts = cut(len(place.w), scheme.fragments)
            self.since = [(0, 0)] * scheme.fragments
            self.met_at = [0] * scheme.fragments
            self.sent: LearnerFragment | None = None
            self.ticket: Ticket | None = None  # of `sent`, while its answer travels
            self.ahead = 0  # steps of this turn that were made while the last answer travelled

        @property
        def whole(self) -> bool:
            return self.sent is None

        def run(self) -> Generator[Effect, Any, None]:
            if not self.steps:
                yield from self.take_all()
            while True:
                if self.sent is None:
                    yield from self.work(max(1, self.steps - self.ahead), begins=True)
                    self.sent = self.contribution(self.turn_to_send())
                    self.ahead = 0
                overlap = self.overlap
                if overlap:
                    self.ticket = yield Start(Call(SERVERS, self.sent))
                    window = math.ceil(self.scheme.grace * overlap)
                    yield from self.work(window)
                    yield Tell(SERVERS, OverlapOver(exchange=self.sent.clock))
                    yield from self.work(overlap - window)
                    answer = yield Wait(self.ticket)
                else:
                    answer = yield Call(SERVERS, self.sent)
                behind = answer.turn - self.turn > self.scheme.fragments
                behind |= not is_finite(self.sent.delta)  # one NaN fragment makes the others NaN in the next step
                self.receive(answer)
                if behind:
                    yield from self.merge_rest()  # each merge of these lies as far back
                    yield from self.take_all()
                    self.start = RESET

        def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
            """Has all fragments merged of which there are steps since their last answer."""
            if self.sent is not None and self.ticket is not None:
                yield Tell(SERVERS, OverlapOver(exchange=self.sent.clock))
                self.receive((yield Wait(self.ticket)))
            yield from self.merge_rest()
            if self.not_merged():
                yield from self.take_all()

        def merge_rest(self) -> Generator[Effect, Any, None]:
            """Has the fragments merged of which there are steps since their last answer, unless they are not finite."""
            while (rest := self.not_merged()) and is_finite(self.x):
                due = self.turn % len(self.parts)
                # One whose turn it is not joins its last merge, or else its first.
                ago = 0 if due in rest else (self.turn - rest[0]) % len(self.parts)
                turn = self.turn - ago + (len(self.parts) if ago > self.turn else 0)
                self.sent = dataclasses.replace(self.contribution(turn), alone=True)
                self.receive((yield Call(SERVERS, self.sent)))

        def not_merged(self) -> list[int]:
            """Returns the fragments of which there are steps since their last answer."""
            return [number for number, since in enumerate(self.since) if since != (self.tokens, self.made)]

        @property
        def overlap(self) -> int:
            """Returns the steps to make while an answer travels: one of a turn's steps is left for the next one."""
            return int(min(self.scheme.tau, self.steps - 1))

        def work(self, steps: int, *, begins: bool = False) -> Generator[Effect, Any, None]:
            """Makes that many local steps on `x`. They count as they are made, whatever becomes of the answer."""
            if not steps:
                return
            trained = yield self.train(self.x, steps, begins=begins)
            self.x = trained.x
            self.tokens, self.made = self.tokens + trained.samples, self.made + steps
            self.ahead = self.ahead + steps
            if begins:
                self.start = RESET if self.scheme.memory == RESET else KEEP
                self.speed = steps / max(trained.seconds, 1e-9)

        def turn_to_send(self) -> int:
            """Returns the turn that is due, or the last turn of a fragment that has missed its last two."""
            fragments, oldest = len(self.parts), self.met_at.index(min(self.met_at))
            missed = self.turn - self.met_at[oldest] > 2 * fragments
            return self.turn - ((self.turn - oldest) % fragments if missed else 0)

        def contribution(self, turn: int) -> LearnerFragment:
            """Returns what this learner has of the fragment of `turn`."""
            number = turn % len(self.parts)
            p, (tokens, made) = self.parts[number], self.since[number]
            return LearnerFragment(
                delta=self.w[p] - self.x[p],
                offset=p.start,
                series=number,
                turn=turn,
                clock=self.round + 1,
                samples=self.not_sent(),
                tokens=self.tokens - tokens,
                steps=self.made - made,
                speed=self.speed,
                alone=bool(self.scheme.tau) and not self.overlap,
            )

        def not_sent(self) -> int:
            """Returns the samples since the last message to the servers, and counts them as sent."""
            samples, self.reported = self.tokens - self.reported, self.tokens
            return int(samples)

        def receive(self, answer: MergedFragment) -> None:
            """Overwrites the fragment; what was learnt of it during the overlap is forgotten, as in the paper."""
            assert self.sent is not None
            number = self.sent.series
            p = self.parts[number]
            if len(answer.theta) == _length(p):
                self.w, self.x = splice(self.w, p, answer.theta), splice(self.x, p, answer.theta)
                self.since[number] = self.tokens, self.made
            self.met_at[number] = answer.turn
            self.turn, self.steps, self.samples_seen = answer.turn, answer.steps, answer.samples_seen
            self.sent = self.ticket = None
            self.met()

        def on_rollback(self) -> None:
            # All of Theta is taken anew. The servers may have kept that exchange, so its clock is not used again.
            self.round += self.sent is not None
            self.sent, self.ticket, self.steps = None, None, 0

        def take_all(self) -> Generator[Effect, Any, None]:
            """Takes all of Theta, and reports what is discarded thereby."""
            request: Pull | StepsDiscarded = Pull()
            if samples := self.not_sent():
                request = StepsDiscarded(clock=self.round + 1, samples=samples)
                self.met()
            answer = yield Call(SERVERS, request)
            self.w = self.x = answer.w
            self.since = [(self.tokens, self.made)] * len(self.parts)
            self.met_at = [answer.turn] * len(self.parts)
            self.turn, self.steps, self.samples_seen = answer.turn, answer.steps, answer.samples_seen

    class Server(ArrivalServer):
        """The synchroniser of one shard. `kept`: by rank, what has come of the fragment that is due.

        total, last: W and Delta of the last merge of each fragment. waiting: learners of this turn without an answer,
        `alone` once their window is over. refused: whom the gradient check has refused this turn.
        """

        goes_back = True
        saved = ("v", "last", "turn", "total")
        transient = ("parts", "kept", "speed", "waiting", "refused", "reason")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.parts = _own_parts(scheme.fragments, place.offset, len(place.w), place.length)
            self.v: Any = place.w * 0.0
            self.last = self.v
            self.turn = 0
            self.total = [0.0] * len(self.parts)
            self.kept: dict[int, PendingFragment] = {}
            self.speed = Ranked(self.workers, SPEED)
            self.waiting: dict[int, LearnerFragment] = {}
            self.refused: set[int] = set()
            self.reason = ""

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            if src not in self.clocks:
                return  # it has left; what was still on its way changes nothing
            match message:
                case LearnerFragment():
                    yield from self.take(now, src, message)
                case OverlapOver():
                    if (m := self.waiting.get(src)) and m.clock == message.exchange:
                        self.waiting[src] = dataclasses.replace(m, alone=True)
                    yield from self.go_on(now)
                case Pull() | StepsDiscarded():
                    if isinstance(message, StepsDiscarded) and self.is_new(src, message):
                        self.note_update(now, (src,), message.samples, 0.0)
                    self.seen[src] = self.version
                    yield Reply(src, WholeModel(w=self.w, **self.progress_for(src)))
                case _:
                    yield from Role.on(self, now, src, message)

        def take(self, now: float, src: int, m: LearnerFragment) -> Iterator[Tell | Reply]:
            """Counts a new contribution; a repeat changes nothing. Who came in time waits for the merge."""
            in_time = m.turn == self.turn and self.fits(m)
            if self.is_new(src, m):
                self.speed.put(src, m.speed)
                self.count(now, src, m, in_time)
            if not in_time or (src not in self.kept and src not in self.refused):
                yield self.answer(src, m)
                return
            self.waiting[src] = m
            yield from self.go_on(now)

        def is_new(self, src: int, m: LearnerMessage) -> bool:
            """Returns False for a repeat; counts the samples of anything else."""
            new = m.clock > self.clocks[src]
            if new:
                self.clocks[src] = m.clock
                self.samples_seen += m.samples
            return new

        def count(self, now: float, src: int, m: LearnerFragment, in_time: bool) -> None:
            new = PendingFragment(m.delta, m.tokens, m.steps, m.samples)
            if not self.fits(m):
                if self.place.refuses is not None:
                    what = f"series is {m.series} and the length of delta {len(m.delta)}, in turn {m.turn}"
                    self.place.refuses(src, f"LearnerFragment: {what}")
                self.note_update(now, (src,), m.samples, 0.0)
            elif self.gate is not None and len(m.delta) and self.gate.push(now, src, m.delta) is not None:
                if in_time:
                    self.refused.add(src)
                self.note_update(now, (src,), m.samples, 0.0)
            elif not in_time:
                self.total[m.series] += new.weight
                share = new.weight / self.total[m.series] if new.weight else 0.0
                self.correct(m.series, (m.delta - self.last[self.parts[m.series]]) * share)
                self.made(now, (src,), m.samples, share or 1.0)
            elif src in self.kept:
                self.kept[src].add(new)
            else:
                self.kept[src] = new

        def fits(self, m: LearnerFragment) -> bool:
            """Returns False for what no correct learner sends. It is answered, but changes nothing."""
            number = m.turn % len(self.parts)
            return m.series == number and len(m.delta) == _length(self.parts[number])

        @property
        def due(self) -> int:  # the fragment of this turn
            return self.turn % len(self.parts)

        def go_on(self, now: float) -> Iterator[Reply]:
            """Merges the fragment that is due if it may be merged, and answers everybody whose window is over."""
            if not self.waiting:
                return
            over = [rank for rank, m in self.waiting.items() if m.alone]
            there, here = (self.kept.keys() | self.refused) & self.clocks.keys(), len(self.clocks)
            missing = self.clocks.keys() - there
            at_once = not self.scheme.tau or not self.scheme.grace
            if len(there) >= min(self.scheme.quorum or here, here) and (over or at_once or not missing):
                self.explain(now, "merge", f"without {some(missing)}" if missing else "everybody came")
                waiting, self.waiting = self.waiting, {}
                self.merge(now)
                yield from [self.answer(rank, m) for rank, m in waiting.items()]
            elif over and self.scheme.tau:
                self.explain(now, "no merge", f"{len(there)} came: the quorum waits for {some(missing)}")
                yield from [self.answer(rank, self.waiting.pop(rank)) for rank in over]

        def merge(self, now: float) -> None:
            """Makes one outer step along what is kept, and begins the next turn."""
            kept, number = self.kept, self.due
            self.kept, self.refused = {}, set()
            self.turn += 1
            if not kept:  # the gradient check has refused all of it
                return
            total = self.total[number] = sum(one.weight for one in kept.values())
            deltas = [one.delta * (one.weight / total if total else 1 / len(kept)) for one in kept.values()]
            self.outer_step(number, functools.reduce(operator.add, deltas))
            self.made(now, tuple(sorted(kept)), sum(one.samples for one in kept.values()), 1.0)

        def outer_step(self, number: int, delta: Any) -> None:
            """OuterOpt: one step of Nesterov momentum on a fragment."""
            lr, mu, p = self.scheme.outer_lr, self.scheme.outer_momentum, self.parts[number]
            if _length(p):
                v = self.v[p] * mu + delta
                self.last, self.v = splice(self.last, p, delta), splice(self.v, p, v)
                self.w = splice(self.w, p, self.w[p] - (delta + v * mu) * lr)

        def correct(self, number: int, c: Any) -> None:
            """Makes the last step of a fragment what it would have been with a Delta that differs by `c`."""
            lr, mu, p = self.scheme.outer_lr, self.scheme.outer_momentum, self.parts[number]
            if _length(p):
                self.last, self.v = splice(self.last, p, self.last[p] + c), splice(self.v, p, self.v[p] + c)
                self.w = splice(self.w, p, self.w[p] - c * (lr * (1 + mu)))

        def made(self, now: float, ranks: tuple[int, ...], samples: int, weight: float) -> None:
            self.version += 1
            self.note_update(now, ranks, samples, weight)

        def note_update(self, now: float, ranks: tuple[int, ...], samples: int, weight: float) -> None:
            if self.note:
                before = self.version - (weight > 0)
                staleness = before - min(self.seen[rank] for rank in ranks)
                self._explain(now, ranks, samples, staleness, weight)

        def answer(self, src: int, m: LearnerFragment) -> Reply:
            """Answers with Theta_p, less what of this learner is kept for a later merge."""
            number = m.turn % len(self.parts)
            theta = self.w[self.parts[number]]
            if number == self.due and src in self.kept:
                theta = theta - self.kept[src].delta
            self.seen[src] = self.version
            return Reply(src, MergedFragment(theta=theta, series=number, **self.progress_for(src)))

        def progress_for(self, rank: int) -> dict[str, int]:
            steps = self.steps_of(rank)
            return {"version": self.version, "turn": self.turn, "steps": steps, "samples_seen": self.samples_seen}

        def steps_of(self, rank: int) -> int:
            """Returns the steps that this learner has time for until the next turn."""
            between = int(self.scheme.between)
            return self.speed.steps_meanwhile(rank, between) if self.scheme.dynamic else between

        def explain(self, now: float, verdict: str, reason: str) -> None:
            """Writes a decision to the trace when it is not the last one again."""
            if self.note and f"{verdict}: {reason}" != self.reason:
                self.reason = f"{verdict}: {reason}"
                rank = next(iter(self.waiting))
                self.note(Decided(at=now, party=f"server {self.me}", rank=rank, verdict=verdict, reason=reason))

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            """Expects nothing more of `rank`, which may complete a quorum. What it has sent stays for the merge."""
            yield from super().on_worker_left(now, rank)
            self.waiting.pop(rank, None)
            self.speed.drop(rank)
            yield from self.go_on(now)

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.speed.add(rank)
            yield from super().on_worker_joined(now, rank)

        def finish(self, now: float) -> Iterator[Tell | Reply]:
            """Merges what is kept: there will be no further turn."""
            if self.kept:
                self.merge(now)
            yield from ()

        def state_dict(self) -> dict[str, Any]:
            """Returns the tables of this shard. The outer momentum is not kept: it begins at zero after a rollback."""
            clocks, seen = [list(own) for own in self.clocks.items()], list(self.seen.items())
            tables = {"turn": self.turn, "version": self.version, "clocks": clocks, "shift": [], "seen": seen}
            return {**tables, "samples_seen": self.samples_seen}

        def load_state_dict(self, tables: dict[str, Any]) -> None:
            """Goes on from `state_dict`. Workers have dropped what they had sent, so any clock is a new one."""
            self.turn, self.version, self.samples_seen = tables["turn"], tables["version"], tables["samples_seen"]
            self.seen.update(dict(tables["seen"]))

        def samples_waiting(self) -> int:
            return sum(one.samples for one in self.kept.values())


def _own_parts(fragments: int, offset: int, length: int, total: int) -> list[slice]:
    """Returns which of its own elements a shard has of each fragment; none of many, where there are several servers."""
    ends = [(p.start - offset, p.stop - offset) for p in cut(total or length, fragments)]
    return [slice(max(0, min(a, length)), max(0, min(b, length))) for a, b in ends]


def _length(p: slice) -> int:
    return int(p.stop - p.start)
