"""Prague: after every step a worker averages with a small group only (Partial All-Reduce), never with all.

    worker i:         repeat  x_i <- x_i - eta grad f_i(x_i)
                              G <- ask the group generator for a group with i in it
                              x_g <- mean(x_j, j in G)   for every g in G, at once     (P-Reduce)
    group generator:  upon a request of i:
                          if i's group buffer is empty:
                              D <- i and the idle workers w of which c_i - c_w < C_thres     (the filter)
                              divide D into groups at random;  append each to its members' buffers     (division)
                          c_i <- c_i + 1;  answer with the first group of i's buffer;  once i is done, take it out

x_i: flat weights of worker i (here `self.w`); eta: any local optimizer, `h` steps of it between two requests (the box
has one). c_w: requests of worker w so far. Idle: with an empty buffer. The generator is the coordinator.

Two groups with a member in common conflict: one has to wait for the other. All buffers hold groups in the order in
which they were made, so a chain of waits ends. A division makes groups without a conflict for many workers at once.
With `groups` random there is none: a request makes one group, of any workers that pass the filter, and conflicts are
as frequent as they come. The filter keeps workers that are much slower out of groups that others ask for. A slow worker
asks as well; its group is made of workers that are faster, and soon there.

What we could read: the abstracts of both versions (Luo et al., ASPLOS 2020; arXiv 1909.08029, as Ripples). They name
P-Reduce, the group buffer, group division and static groups; the box is how we know the algorithm, not checked against
the text. Ours: the default of C_thres; that the request itself is not yet in c_i; that a worker says when it is done
with a group; and the sizes of the groups of a division, which differ by one at most and are `size` at most. Whoever is
alone in a group goes on alone. With `size` 0 a group is all workers that pass the filter, idle or not.
Left out: static groups for machines that are alike, and groups that follow hosts.

P-Reduce: each member sends its x to the others, which take the mean in the order of ranks; so each moves |G| - 1 models
in and out. (A ring would move 2 (|G| - 1) / |G|: the same for two.) Nobody outside the group waits, and the loss of a
member costs its part only. The model that is evaluated and saved is the mean of the workers'. As in noloco, workers
that came and went count differently (push-sum masses), one that leaves hands its model over, and a part that is not
finite is left out.

Memory of the local optimizer: kept by default, or reset after a P-Reduce with others. It is not averaged.

Use it on workers of uneven speed without servers, where pairs (adpsgd) mix too slowly. Not where a model is dear to
send: every step moves as many as the group has other members.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator, Iterator
from typing import Any, ClassVar

from paceline.core.collective.mean_server import mean_model
from paceline.core.effects import COORDINATOR, KEEP, RESET, Call, Effect, Reply, Start, Tell, Train, Trained, Wait
from paceline.core.errors import PeerLost
from paceline.core.local.answered_rounds import AnsweredRounds, RoundSent
from paceline.core.message import STATE, Nature, message
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.trace import Decided
from paceline.core.validation import bounds
from paceline.core.vector import is_finite

DIVISION, RANDOM = "division", "random"
PARTS_MAX = 2
"""Parts of one sender that wait here: of the group at hand, and of the next one that has both in it."""


@message("prague.GroupRequest")
class GroupRequest:
    """Asks for the group after group `done`, the last that the sender has averaged with; -1 at first."""

    done: bounds.RoundNumber


@message("prague.GroupDone")
class GroupDone:
    """Says that the sender has averaged with group `done`, so that it is idle unless it is in others."""

    done: bounds.RoundNumber


@message("prague.AssignedGroup")
class AssignedGroup:
    """Answers a GroupRequest: the number of the group, and its members in order."""

    number: bounds.Count
    members: bounds.Ranks


@message("prague.Part")
class ReducePart:
    """Carries the weights of one member to another one of group `round`; `counts`: its mass, which stays there."""

    carries: ClassVar[Nature] = STATE

    x: bounds.Whole
    counts: bounds.Mass
    round: bounds.RoundNumber


def _check_size(size: int) -> None:
    if size == 1:
        raise ValueError("a group has two workers or more, and 0 means all: take 2")


@scheme(
    "prague",
    summary="after every step a worker averages with a small group; the slow hold nobody up",
    paper=Paper(
        key="luo2020prague",
        authors="Luo, Qinyi and He, Jiaao and Zhuo, Youwei and Qian, Xuehai",
        title="Prague: High-Performance Heterogeneity-Aware Asynchronous Decentralized Training",
        venue="International Conference on Architectural Support for Programming Languages and Operating Systems "
        "(ASPLOS)",
        year=2020,
        url="https://arxiv.org/abs/1909.08029",
    ),
)
class Prague(Scheme):
    size: int = parameter(3, "|G|: workers of a group at most; 0: all", low=0, check=_check_size)
    c_thres: int = parameter(4, "C_thres: who is as many requests behind gets into no group that others ask for", low=1)
    groups: str = parameter(
        DIVISION, "divide the idle workers into groups, or make one random group a request", choices=(DIVISION, RANDOM)
    )
    h: int = parameter(1, "local steps between two requests; 1 in the box", low=1)
    memory: str = parameter(
        KEEP, "what a P-Reduce does to the local optimizer's memory: keep or reset it", choices=(KEEP, RESET)
    )

    trains_locally = True
    needs_peers = True
    workers_differ = True

    class Worker(AnsweredRounds):
        """last: the group averaged with last. done: local steps that are in no group yet. sent: their part."""

        transient = ("last", "done", "sent", "parts")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.last = -1
            self.done: Trained | None = None
            self.sent: ReducePart | None = None
            self.parts: dict[int, dict[int, ReducePart]] = defaultdict(dict)  # by sender and group

        def run(self) -> Generator[Effect, Any, None]:
            yield from self.enter()
            while True:
                if self.done is None:
                    self.absorb()
                    self.done = yield Train(self.w, self.scheme.h, memory=self.memory())
                group = yield Call(COORDINATOR, GroupRequest(done=self.last))
                yield from self.exchange(group, self.part_in(group.number))
                self.reduce(group)
                yield Tell(COORDINATOR, GroupDone(done=self.last))

        def part_in(self, number: int) -> ReducePart:
            """Returns this worker's part in a group; after a restart the very same again."""
            assert self.done is not None
            if self.sent is None or self.sent.round != number:
                self.sent = ReducePart(x=self.trained(self.done.x), counts=self.weight, round=number)
            return self.sent

        def exchange(self, group: AssignedGroup, part: ReducePart) -> Generator[Effect, Any, None]:
            """Sends `part` to the other members, and waits until theirs have come, or never will."""
            self.told = group.number  # groups come in order: this worker is in none before this one
            yield from self.answer_who_asked()
            reached = []
            for rank in group.members:
                if rank == self.me or rank in self.away:
                    continue
                try:
                    yield Tell(rank, part)
                    reached.append(rank)
                except PeerLost:
                    continue
            self.told = group.number + 1
            yield from self.answer_who_asked()
            tickets = []
            for rank in reached:
                tickets.append((yield Start(Call(rank, RoundSent(round=group.number)))))
            for ticket in tickets:
                try:
                    yield Wait(ticket)
                except PeerLost:
                    continue

        def reduce(self, group: AssignedGroup) -> None:
            """Takes the mean of the parts of use that are there, in the order of ranks, so that all have the same."""
            assert self.sent is not None
            parts = {rank: known[group.number] for rank, known in self.parts.items() if group.number in known}
            parts = {rank: part for rank, part in parts.items() if part.counts and is_finite(part.x)}
            parts[self.me] = self.sent
            members = [parts[rank] for rank in group.members if rank in parts]
            self.w = mean_model((part.x, part.counts) for part in members)
            self.mixed = self.mixed or len(members) > 1
            self.last = group.number
            self.done = self.sent = None
            for known in self.parts.values():
                for number in [number for number in known if number <= self.last]:
                    del known[number]

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case ReducePart(round=round):
                    self.keep(src, round, message)
                case _:
                    yield from super().on(now, src, message)

        def keep(self, src: int, number: int, part: ReducePart) -> None:
            """Keeps a part until its group is averaged."""
            known = self.parts[src]
            if number > self.last:
                known[number] = part
            if len(known) > PARTS_MAX:
                del known[min(known)]

    class Coordinator(Role):
        """The group generator. A group is its number and the members that still take part."""

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.members = set(self.workers)
            self.c = dict.fromkeys(self.workers, 0)  # requests
            self.made = 0  # groups
            self.buffers: dict[int, deque[tuple[int, set[int]]]] = {rank: deque() for rank in self.workers}
            self.given = dict.fromkeys(self.workers, -1)  # the last group that each was told of
            self.slow: set[int] = set()  # whom the filter keeps out, as far as the trace knows

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case GroupRequest() | GroupDone() if src not in self.members:
                    return  # it has left
                case GroupDone(done=done):
                    self.take_out(src, done)
                case GroupRequest(done=done):
                    self.take_out(src, done)
                    number, members = self.next_of(now, src)
                    yield Reply(src, AssignedGroup(number=number, members=tuple(sorted(members))))
                case _:
                    yield from super().on(now, src, message)

        def take_out(self, rank: int, done: int) -> None:
            buffer = self.buffers[rank]
            while buffer and buffer[0][0] <= done:
                buffer.popleft()

        def next_of(self, now: float, i: int) -> tuple[int, set[int]]:
            """Returns the first group of i's buffer; the same again for a worker that was restarted meanwhile."""
            if not self.buffers[i]:
                self.generate(now, i)
            group = self.buffers[i][0]
            if group[0] > self.given[i]:
                self.given[i] = group[0]
                self.c[i] += 1
            return group

        def generate(self, now: float, i: int) -> None:
            """Makes groups, one of them with i."""
            others = [w for w in sorted(self.members) if w != i and self.keeps_up(now, w, i)]
            if self.scheme.groups == RANDOM or not self.scheme.size:
                others = others if not self.scheme.size else self.some(others, self.scheme.size - 1)
                self.append([i, *others])
                return
            d = [i, *(w for w in others if not self.buffers[w])]
            self.rng.shuffle(d)
            parts = -(-len(d) // self.scheme.size)
            for part in range(parts):
                self.append(d[part::parts])

        def some(self, others: list[int], number: int) -> list[int]:
            return self.rng.sample(others, min(number, len(others)))

        def append(self, members: list[int]) -> None:
            group = self.made, set(members)
            self.made += 1
            for rank in members:
                self.buffers[rank].append(group)

        def keeps_up(self, now: float, w: int, i: int) -> bool:
            """Returns True if w passes the filter of i's request."""
            passes: bool = self.c[i] - self.c[w] < self.scheme.c_thres
            if self.note and passes == (w in self.slow):
                self.slow ^= {w}
                verdict = "grouped" if passes else "left out"
                reason = f"it has made {self.c[w]} requests, worker {i} {self.c[i]}; C_thres is {self.scheme.c_thres}"
                self.note(Decided(at=now, party="coordinator", rank=w, verdict=verdict, reason=reason))
            return passes

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.members.discard(rank)
            for _, members in self.buffers[rank]:
                members.discard(rank)
            self.buffers[rank].clear()
            yield from ()

        def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.c[rank] = max((self.c[other] for other in self.members), default=0)
            self.members.add(rank)
            yield from ()
