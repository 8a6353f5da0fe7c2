"""HALoS: a local parameter server in each region and a global one, and nobody waits at either.

    worker i:  repeat  x <- H local steps from theta of its region;  send delta = theta - x;  theta <- the answer
    local PS:  upon delta:      theta <- DN(theta, delta; eta_l, beta_l, d_l);  answer theta
               K deltas after the last merge:   send Delta = theta_m - theta to the global PS, and go on
               upon theta_g:    theta <- (1 - alpha) theta + alpha theta_g;  theta_m <- theta             (merge)
    global PS: upon Delta:      theta_g <- DN(theta_g, Delta; eta_g, beta_g, d_g);  answer theta_g
    DN(w, v; eta, beta, d):     D <- D + v;  every d-th time:  m <- beta m + D / d;  D <- 0
                                                               w <- w - eta (d beta m + v)
                                otherwise:                     w <- w - eta v            (delayed Nesterov, c = 0)

theta, theta_g: flat weights of a region and of all; theta_m: theta after the last merge; m and D start at zero. DN is
asyncdiloco's server (Liu et al. 2024) with its rate eps = eta d. What is evaluated and saved is theta_g.

Read: the abstract, a summary of Algorithm 1 (Kim et al., ICML 2025) and the authors' code, not the paper's text. The
code's numbers for four regions of four workers: eta_l 0.2, beta_l 0.9, d_l 16, eta_g 0.15, beta_g 0.5, d_g 2,
alpha 0.25, H 8, K 32. They are the defaults, but K is 8 here, so that regions of two workers meet as often. As in the
code, what a local server takes in while Delta is on its way is in theta after the merge, but in no later Delta. Ours:
the last Delta of a region has what theta still holds of it.

A region is a group of workers as under tiers, and its local server is on one of them, the speaker (see there: what
`auto` groups are, what happens when the speaker is lost or a member's delta is not finite). The speaker trains as well;
it sends Delta and merges between two rounds of its own, so up to H of its steps late, and it alone waits when theta_g
is not there after a round. `tiers` with asyncdiloco between groups is another thing: a group pauses while its exchange
is on its way, and goes on from theta_g alone.

Memory of the local optimizer: kept by default, or reset in every round.

Use it on regions with slow links between them, and uneven workers in each. Not within one region: asyncdiloco is the
same there with one server less.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from paceline.core.effects import KEEP, RESET, SERVERS, Call, Effect, Reply, Start, Tell, Train, Trained, Wait
from paceline.core.errors import PeerLost, Unexpected
from paceline.core.message import STATE, Nature
from paceline.core.role import RoleContext, found_under, named_under
from paceline.core.scheme import Paper, Scheme, make, parameter, scheme
from paceline.core.tiers.group_choice import WithRankGroups
from paceline.core.tiers.member import GroupMember, TermOver
from paceline.core.tiers.messages import AwaitGroup, EnterGroup, GroupBegin, GroupExchanged, RoundOver, Speaks
from paceline.core.tiers.outer_server import OuterServer
from paceline.core.tiers.speakers import SpeakersCoordinator
from paceline.core.tiers.worker import GROUP_SAMPLES_MAX

REGION = "region"
"""Stands in a checkpoint before the names of what a region's local server keeps."""


@scheme(
    "halos",
    summary="local steps, a local server a region and a global one; nobody waits at either",
    paper=Paper(
        key="kim2025halos",
        authors="Kim, Geon-Woo and Li, Junbo and Gandham, Shashidhar and Baldonado, Omar and others",
        title="HALoS: Hierarchical Asynchronous Local SGD over Slow Networks for Geo-Distributed Large Language Model "
        "Training",
        venue="International Conference on Machine Learning (ICML)",
        year=2025,
        url="https://arxiv.org/abs/2506.04531",
    ),
)
class HALoS(WithRankGroups):
    h: int = parameter(8, "H: local steps of a worker between two exchanges with its local server", low=1)
    k: int = parameter(8, "K: deltas that a local server takes in between a merge and the next Delta", low=1)
    alpha: float = parameter(0.25, "share of the global weights in a merge", low=0.0, high=1.0)
    local_lr: float = parameter(0.2, "eta_l: rate of a delta at the local server", low=0.0)
    local_momentum: float = parameter(0.9, "beta_l: momentum of the local server", low=0.0, high=0.999)
    local_delay: int = parameter(16, "d_l: deltas between two updates of that momentum", low=1)
    global_lr: float = parameter(0.15, "eta_g: rate of a Delta at the global server", low=0.0)
    global_momentum: float = parameter(0.5, "beta_g: momentum of the global server", low=0.0, high=0.999)
    global_delay: int = parameter(2, "d_g: Deltas between two updates of that momentum", low=1)
    memory: str = parameter(
        KEEP, "what a round does to the local optimizer's memory: keep or reset it", choices=(KEEP, RESET)
    )

    round_steps = "h"
    trains_locally = True
    needs_peers = True
    mixes_steps = True
    composite = True

    @functools.cached_property
    def inner_scheme(self) -> Scheme:
        """Returns what workers and the local server do: DN, with equal steps for all."""
        return self._delayed(self.h, self.local_lr, self.local_momentum, self.local_delay, memory=self.memory)

    @functools.cached_property
    def outer_scheme(self) -> Scheme:
        """Returns what the global server does, to which regions are workers."""
        return self._delayed(self.k, self.global_lr, self.global_momentum, self.global_delay)

    @staticmethod
    def _delayed(h: int, eta: float, beta: float, d: int, **more: Any) -> Scheme:
        rates = {"outer_lr": eta * d, "outer_momentum": beta, "buffer": d}
        return make("asyncdiloco", {"h": h, **rates, "dynamic": False, **more})

    def inner_for(self, steps: int) -> Scheme:
        """Returns the scheme by which a member takes part."""
        return self.inner_scheme

    def nature(self, message: type) -> Nature:
        return self.outer_scheme.nature(message)

    def natures(self, servers: int) -> tuple[set[Nature], set[Nature]]:
        up, down = self.outer_scheme.natures(servers)
        return up | down | {STATE}, down

    class Worker(GroupMember):
        """A member of a region; where it speaks, `local` is the region's server and `outer` its box to the global one.

        early: who has entered before there was a server. merged: theta_m; since: deltas before it; told: samples that
        the global server has been told of. ticket: the exchange under way; sent: theta when that began. missed: what
        theta has of deltas that came while a Delta was on its way. taken: by number, the last delta of each member in
        that. asks: this worker, which trains no more, has asked itself when to go on.
        """

        transient = (
            *(
                "early",
                "local",
                "outer",
                "outer_run",
                "merged",
                "since",
                "told",
                "ticket",
                "sent",
                "missed",
                "asks",
                "taken",
            ),
        )

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            self.early: dict[int, None] = {}
            super().__init__(scheme, place)

        def begin_term(self) -> None:
            super().begin_term()
            self.local: Any = None
            self.outer: Any = None
            self.outer_run: Any = None
            self.merged: Any = None
            self.since = self.told = 0
            self.ticket: Any = None
            self.sent: Any = None
            self.missed: Any = None
            self.taken: dict[int, int] = {}
            self.asks = False

        # ---- what a resumed run goes on from -----------------------------------------------------------------
        @property
        def whole(self) -> bool:
            return self.inner is not None and self.ticket is None

        def progress(self) -> int:
            return self.outer.progress() if self.outer is not None else 0

        def state(self) -> dict[str, Any]:
            found = super().state()
            if self.local is not None:
                region = {"w": self.local.w, "merged": self.merged, **self.local.state()}
                if self.missed is not None:
                    region["missed"] = self.missed
                region |= {"ahead": self.local.version - self.since, "untold": self.local.samples_seen - self.told}
                found |= named_under(REGION, region)
            return found

        def region_goes_on(self) -> None:
            """Lets the local server, which has just been made, go on from what was kept of it."""
            kept = found_under(REGION, self.resumed)
            if kept:
                self.goes_on(self.local, REGION)
                self.local.w, self.merged, self.missed = kept["w"], kept["merged"], kept.get("missed")
                self.since = self.local.version - kept["ahead"]
                self.told = self.local.samples_seen - kept["untold"]

        # ---- upon receiving: the local server --------------------------------------------------------------
        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            if self.map.group_of[src] != self.group:
                raise Unexpected(f"worker {src} is in another group, and sends {type(message).__name__}")
            number = self.map.number_of[src]
            match message:
                case GroupExchanged(clock=clock):
                    self.exchange_has(src, clock)
                case EnterGroup() if self.local is None:
                    self.early[src] = None
                case EnterGroup():
                    yield from self.begin(now, src)
                case AwaitGroup():
                    self.asks = True
                    yield from self.go_on()
                case _ if self.local is not None:
                    yield from self.in_ranks(self.local.on(now, number, message))
                    yield from self.go_on()

        def go_on(self) -> Iterator[Reply]:
            """Answers this worker's own question once an exchange is due, or nobody else trains in the region."""
            if self.asks and (self.due or not self.others()):
                self.asks = False
                yield Reply(self.me, RoundOver())

        @property
        def due(self) -> bool:
            return bool(self.local.version - self.since >= self.scheme.k)

        def others(self) -> set[int]:
            return set(self.ranks) - self.away - {self.me}

        def in_ranks(self, effects: Iterable[Tell | Reply]) -> Iterator[Tell | Reply]:
            for effect in effects:
                yield dataclasses.replace(effect, to=self.ranks[effect.to])  # type: ignore[index]  # a member

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            yield from super().on_worker_left(now, rank)
            self.early.pop(rank, None)
            if self.local is not None and self.map.group_of[rank] == self.group:
                yield from self.local.on_worker_left(now, self.map.number_of[rank])
                yield from self.go_on()

        def on_refused(self, now: float, rank: int, message: Any) -> Iterator[Tell | Reply]:
            """Goes on without a member of the region, until it enters again."""
            self.early.pop(rank, None)
            if self.local is not None and self.map.group_of[rank] == self.group:
                yield from self.local.on_worker_left(now, self.map.number_of[rank])
                yield from self.go_on()

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            yield from super().on_worker_joined(now, rank)
            if self.local is not None and self.map.group_of[rank] == self.group:
                yield from self.local.on_worker_joined(now, self.map.number_of[rank])

        # ---- the speaker's loop ----------------------------------------------------------------------------
        def speak(self) -> Generator[Effect, Any, None]:
            """Trains as a member, and between two rounds looks after the exchange with the global server."""
            yield from self.reach_out()
            role = self.member(self.scheme.inner_scheme)
            run, value = role.run(), None
            try:
                while True:
                    effect = run.send(value)
                    if isinstance(effect, Train):
                        yield from self.exchange()
                        effect = dataclasses.replace(effect, x=role.w)
                    value = self.held.trained((yield self.within(effect)))
            except PeerLost:  # its calls to itself fail once it was declared lost
                raise TermOver from None
            finally:
                run.close()

        def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
            """Ends as a member. A speaker then goes on with the exchanges of its region until nobody trains there."""
            yield from super().last_exchange(soon=soon)
            if self.speaker is None or self.speaker.rank != self.me or self.local is None:
                return
            try:
                while True:
                    idle = self.ticket is None and not self.due
                    if idle and not soon and self.others():
                        yield Call(self.me, AwaitGroup())
                    elif idle and self.missed is None and self.since == self.local.version:
                        return
                    else:
                        yield from self.exchange(at_once=True)
            except PeerLost:
                return

        def reach_out(self) -> Generator[Effect, Any, None]:
            """Begins the box to the global server, and with its weights the local server; goes on after a restart."""
            if self.outer is None:
                heard = yield Call(SERVERS, Speaks())
                groups, own = tuple(range(len(self.map.groups))), self.scheme.outer_scheme
                place = dataclasses.replace(self.place, me=self.group, workers=groups, note=None, w=heard.w)
                self.outer, self.w = own.worker(1)(own, place), None
            outer = self.outer_run = self.outer.run()
            effect, self.ticket = next(outer), None
            if self.local is None:
                if isinstance(effect, Call):
                    effect = outer.send((yield effect))
                assert isinstance(effect, Train)
                yield from self.begin_region(effect.x)
            elif isinstance(effect, Call):  # an exchange was under way
                self.ticket = yield Start(effect)

        def begin_region(self, w: Any) -> Iterator[Tell | Reply]:
            """Makes the local server, and lets those begin who have entered."""
            own = self.scheme.inner_scheme
            self.local = own.server(1)(own, self.of_group(0, w=w))
            self.merged = w
            self.region_goes_on()
            for number, rank in enumerate(self.ranks):
                if rank in self.away:
                    list(self.local.on_worker_left(0.0, number))
            while self.early:
                rank = next(iter(self.early))
                del self.early[rank]
                yield from self.begin(0.0, rank)

        def begin(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            """Lets a member begin. It may be a newcomer of which a speaker that is one, too, was not told."""
            yield from self.local.on_worker_joined(now, self.map.number_of[rank])
            yield Reply(rank, GroupBegin(steps=self.scheme.h))

        def exchange(self, *, at_once: bool = False) -> Generator[Effect, Any, None]:
            """Begins an exchange with the global server if one is due, or `at_once`, or ends the one under way."""
            if self.ticket is not None:
                effect = self.outer_run.send((yield Wait(self.ticket)))
                self.ticket = None
                assert isinstance(effect, Train)
                self.merge(effect.x)
                yield from self.notify_exchanged(self.taken)
            elif self.due or at_once:
                effect = self.outer_run.send(self.trained(last=at_once))
                assert isinstance(effect, Call)
                self.ticket = yield Start(effect)

        def trained(self, *, last: bool) -> Trained:
            """Returns the region's work as that of one worker, of which the outer box sends Delta = theta_m - theta.

            The `last` Delta has what came while others were on their way, too.
            """
            samples, self.told = self.local.samples_seen - self.told, self.local.samples_seen
            self.sent, self.taken = self.local.w, dict(self.local.clocks)
            moved = self.sent - self.merged
            if last and self.missed is not None:
                moved, self.missed = moved + self.missed, None
            x = self.outer.w + moved
            return Trained(x, min(samples, GROUP_SAMPLES_MAX), 1.0)

        def merge(self, theta_g: Any) -> None:
            alpha, theta = self.scheme.alpha, self.local.w
            if theta is not self.sent:
                missed = theta - self.sent
                self.missed = missed if self.missed is None else self.missed + missed
            if self.missed is not None:
                self.missed = self.missed * (1 - alpha) if alpha < 1 else None
            self.sent = None
            self.local.w = self.merged = theta * (1 - alpha) + theta_g * alpha if alpha < 1 else theta_g
            self.since = self.local.version
            assert self.inner is not None
            self.inner.w = self.local.w

    Server = OuterServer
    Coordinator = SpeakersCoordinator
