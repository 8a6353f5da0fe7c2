"""The coordinator says who speaks for each group: its longest-standing member, until that one leaves or is lost.

    input                         state of the group                 answer or notice
    WhoSpeaks, after < term       it has a speaker                   Speaker, at once
    WhoSpeaks, after >= term      the speaker is not known as lost   Speaker, once another one is appointed
    WhoSpeaks of a newcomer       not heard of yet                   Speaker, once the newcomer is heard of
    WhoSpeaks of a newcomer       it has no speaker                  the next term: a newcomer that asks can be called
    the speaker leaves            others take part                   the next term; those that asked are answered
    the last member leaves        none takes part                    no speaker until somebody comes
    a member comes or leaves      it has a speaker                   GroupMembers to the speaker

One party decides, so no two members follow different speakers for long: who still follows an old one loses its
calls, and asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.role import Role, RoleContext
from paceline.core.tiers.messages import GroupMembers, Speaker, WhoSpeaks
from paceline.core.trace import Decided


class _GroupState:
    """Who takes part in one group, in the order in which they came, and who speaks."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.since = dict.fromkeys(ranks, 0)
        self.number = 0
        self.speaker: int | None = ranks[0]
        self.term = 1
        self.asked: dict[int, int] = {}  # by rank: after which term
        self.begun = set(ranks)  # members that run, as far as is known; others have been announced

    def members(self) -> GroupMembers:
        ranks, since = tuple(self.since), tuple(self.since.values())
        return GroupMembers(term=self.term, number=self.number, ranks=ranks, since=since)


class SpeakersCoordinator(Role):
    """Appoints the speakers; all other messages are those of the outer scheme's coordinator."""

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.map = scheme.rank_groups(place)
        self.states = [_GroupState(ranks) for ranks in self.map.groups]

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Answers who speaks for the sender's group."""
        if not isinstance(message, WhoSpeaks):
            yield from super().on(now, src, message)
            return
        state = self.states[self.map.group_of[src]]
        state.asked[src] = message.after
        yield from self._heard_of(now, state, src)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Appoints another speaker if the group has lost its own, and otherwise tells the speaker."""
        state = self.states[self.map.group_of[rank]]
        if rank not in state.since:
            return
        del state.since[rank]
        state.asked.pop(rank, None)
        state.begun.discard(rank)
        state.number += 1
        if rank == state.speaker:
            state.speaker = None
            yield from self._appoint(now, state, f"worker {rank}, who spoke for it, is gone")
        else:
            yield from self._tell(state)

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Takes a newcomer into its group, as the last one that would speak."""
        state = self.states[self.map.group_of[rank]]
        if rank in state.since:
            return
        state.number += 1
        state.since[rank] = state.number
        yield from self._tell(state)
        yield from self._heard_of(now, state, rank)

    def _heard_of(self, now: float, state: _GroupState, rank: int) -> Iterator[Tell | Reply]:
        """Answers a member that has asked and is known to have come; appoints it if nobody speaks."""
        if rank not in state.since or rank not in state.asked:
            return
        state.begun.add(rank)
        if state.speaker is None:
            yield from self._appoint(now, state, "nobody else is there")
        else:
            yield from self._answer(state)

    def _appoint(self, now: float, state: _GroupState, why: str) -> Iterator[Tell | Reply]:
        state.speaker = next((rank for rank in state.since if rank in state.begun), None)
        if state.speaker is None:
            return
        state.term += 1
        if self.note:
            verdict = f"speaks for group {self.map.group_of[state.speaker]}"
            decided = Decided(at=now, party="coordinator", rank=state.speaker, verdict=verdict, reason=why)
            self.note(decided)
        yield from self._answer(state)

    def _tell(self, state: _GroupState) -> Iterator[Tell]:
        if state.speaker is not None:
            yield Tell(state.speaker, state.members())

    def _answer(self, state: _GroupState) -> Iterator[Reply]:
        """Answers those who asked, as far as there is an answer. Only the speaker needs to know the members."""
        if state.speaker is None:
            return
        ready = [rank for rank, after in state.asked.items() if after < state.term and rank in state.since]
        for rank in ready:
            del state.asked[rank]
            named = state.members() if rank == state.speaker else None
            ranks, since = (named.ranks, named.since) if named else ((), ())
            yield Reply(
                rank, Speaker(rank=state.speaker, term=state.term, number=state.number, ranks=ranks, since=since)
            )
