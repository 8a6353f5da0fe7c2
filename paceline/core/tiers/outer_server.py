"""The servers of the outer scheme know each group as one worker, whoever speaks for it.

input                                     then
Speaks, and the group has no speaker      the group's worker is a fresh one: the outer server hears that it left
                                          and came; its speaker is the sender
Speaks, and it has another speaker        as soon as this server has heard that the other one is gone
a message of the group's speaker          the outer server's answer, to the speaker
a message of any other worker             nothing
the speaker leaves                        the outer server goes on without it, and waits for the next one
the last member of a group leaves         the outer server hears that the group left
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.role import GradientCheck, Role, RoleContext, found_under, named_under
from paceline.core.tiers.messages import Heard, Speaks
from paceline.core.trace import Applied, Decided, Record

OUTER = "outer"
"""Stands in a checkpoint before the names of what the outer scheme's role keeps."""


class OuterServer(Role):
    """Holds one shard of the model, by the outer scheme's server."""

    transient = (*("map", "speaker", "author", "waiting", "clocks", "here", "away", "known", "early", "seen", "outer"),)

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        self.map = scheme.rank_groups(place)
        groups = tuple(range(len(self.map.groups)))
        self.speaker: dict[int, int] = {}  # by group
        self.author = {g: ranks[0] for g, ranks in enumerate(self.map.groups)}  # of the last contribution of each group
        self.waiting: list[list[int]] = [
            [] for _ in groups
        ]  # whose contributions may not be in an update yet, by group
        self.clocks: dict[int, int] = {}  # of each speaker's last contribution
        self.here = [set(ranks) for ranks in self.map.groups]
        self.away: set[int] = set()  # groups that the outer server does not count
        self.known: set[int] = set()  # groups that somebody has spoken for
        self.early: dict[int, int] = {}  # by group: who would speak for it
        self.seen = dict.fromkeys(place.workers, 0)  # by rank: the version of the weights that it was given last
        note, gate, made_of, refuses = place.note, place.gate, place.contributing, place.refuses
        own = dataclasses.replace(
            place,
            workers=groups,
            note=None if note is None else lambda record: note(self.in_ranks(record)),
            gate=None if gate is None else _GateByGroup(gate, self.author),
            contributing=None if made_of is None else lambda of: made_of([self.author[g] for g in of]),
            refuses=None if refuses is None else lambda g, why: refuses(self.author[g], why),
            settled=None,
            seconds_per_step=(),
            most_samples=0,
        )
        self.outer: Role = scheme.outer_scheme.server(1)(scheme.outer_scheme, own)
        super().__init__(scheme, place)

    def state(self) -> dict[str, Any]:
        return named_under(OUTER, self.outer.state())

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.outer.load_state(found_under(OUTER, state))

    @property
    def w(self) -> Any:
        return self.outer.w

    @w.setter
    def w(self, w: Any) -> None:
        self.outer.w = w

    @property
    def samples_seen(self) -> int:
        return self.outer.samples_seen

    @samples_seen.setter
    def samples_seen(self, samples: int) -> None:
        self.outer.samples_seen = samples

    @property
    def version(self) -> int:
        """Returns how many updates this shard has applied."""
        return int(self.outer.version)  # type: ignore[attr-defined]

    def in_ranks(self, record: Record) -> Record:
        """Returns a record of the outer scheme with ranks in place of groups.

        An update is made of the work of all members of its groups. Its staleness is that of the weights that those were
        given who handed it over: two speakers may have done so for one group before there is an update.
        """
        match record:
            case Applied(ranks=groups, weight=weight, version=version):
                ranks: set[int] = set()
                staleness = 0
                for g in groups:
                    brought = self.waiting[g] if weight > 0 and self.waiting[g] else [self.author[g]]
                    self.waiting[g] = [rank for rank in self.waiting[g] if rank not in brought]
                    staleness = max(staleness, version - (weight > 0) - min(self.seen[rank] for rank in brought))
                    ranks |= self.here[g].union(brought)
                return dataclasses.replace(record, ranks=tuple(sorted(ranks)), staleness=staleness)
            case Decided(rank=g, whom=groups):
                named = tuple(sorted(self.speaker.get(other, self.author[other]) for other in groups))
                return dataclasses.replace(record, rank=self.speaker.get(g, self.author[g]), whom=named)
        return record

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        g = self.map.group_of[src]
        if isinstance(message, Speaks):
            yield from self.hear_speaker(now, g, src)
        elif self.speaker.get(g) == src:
            clock = getattr(message, "clock", 0)
            if clock > self.clocks.get(src, 0):  # no repetition, of a restarted speaker
                self.author[g], self.clocks[src] = src, clock
                self.waiting[g] = [*(other for other in self.waiting[g] if other != src), src]
                if self.gate is not None:
                    self.gate.came(src)
            yield from self.passed_on(self.outer.on(now, g, message))

    def hear_speaker(self, now: float, g: int, src: int) -> Iterator[Tell | Reply]:
        """Takes the sender for the group's speaker, once it has no other one."""
        # No seed of the fuzzer gets here: with hazards, as live, nothing is taken of a worker that is known to be lost.
        # Without hazards a notice has a way of its own, and may overtake a message on a slow link.
        if src not in self.here[g]:
            return
        if self.speaker.get(g, src) != src:
            self.early[g] = src  # the coordinator knows of a loss that this server has not heard of yet
            return
        if g not in self.speaker:
            self.speaker[g] = src
            if g in self.known and g not in self.away:
                self.away.add(g)
                yield from self.passed_on(self.outer.on_worker_left(now, g))
            self.known.add(g)
            if g in self.away:
                self.away.discard(g)
                yield from self.passed_on(self.outer.on_worker_joined(now, g))
        self.seen[src] = self.version
        yield Reply(src, Heard(w=self.w, version=self.version))

    def passed_on(self, effects: Iterable[Tell | Reply]) -> Iterator[Tell | Reply]:
        """Yields the answers to groups as answers to their speakers; a group that has lost its own gets none."""
        for effect in effects:
            assert isinstance(effect, Reply), "an outer scheme's servers answer, and say nothing else"
            speaker = self.speaker.get(effect.to)
            if speaker is not None:
                self.seen[speaker] = self.version
                yield Reply(speaker, effect.message)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        g = self.map.group_of[rank]
        self.here[g].discard(rank)
        if self.early.get(g) == rank:
            del self.early[g]
        if self.speaker.get(g) == rank:
            del self.speaker[g]
            if g in self.early:
                yield from self.hear_speaker(now, g, self.early.pop(g))
        if not self.here[g] and g not in self.away:
            self.away.add(g)
            yield from self.passed_on(self.outer.on_worker_left(now, g))

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """A newcomer is heard of; its group takes part again once somebody speaks for it."""
        self.here[self.map.group_of[rank]].add(rank)
        self.seen[rank] = self.version
        self.clocks.pop(rank, None)
        yield from ()

    def samples_waiting(self) -> int:
        return self.outer.samples_waiting()

    def finish(self, now: float) -> Iterator[Tell | Reply]:
        yield from self.passed_on(self.outer.finish(now))


class _GateByGroup:
    """Checks gradients of groups as those of their speakers, whom the check rejects or expels."""

    def __init__(self, gate: GradientCheck, author: dict[int, int]) -> None:
        self.gate, self.author = gate, author

    def push(self, now: float, rank: int, v: Any, onto: Any = None, waiting: Collection[int] = ()) -> str | None:
        return self.gate.push(now, self.author[rank], v, onto, [self.author[group] for group in waiting])

    def part(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        return self.gate.part(now, self.author[rank], v, onto)

    def gone(self, rank: int) -> None:
        self.gate.gone(self.author[rank])

    def came(self, rank: int) -> None:
        """The group is there again. Who speaks for it now comes for the check with its first contribution."""
