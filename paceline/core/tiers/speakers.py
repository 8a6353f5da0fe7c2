"""The coordinator says who speaks for each group: its longest-standing member, until that one leaves or is lost.

    input                         state of the group                 answer or notice
    WhoSpeaks, after < term       it has a speaker                   Speaker, at once
    WhoSpeaks, after >= term      the speaker is not known as lost   Speaker, once another one is appointed
    WhoSpeaks of a newcomer       not heard of yet                   Speaker, once the newcomer is heard of
    WhoSpeaks of a newcomer       it has no speaker                  the next term: a newcomer that asks can be called
    the speaker leaves            others take part                   the next term; those that asked are answered
    the last member leaves        none takes part                    no speaker until somebody comes

One party decides, so no two members follow different speakers for long: who still follows an old one loses its
calls, and asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.role import Role, RoleContext
from paceline.core.tiers.messages import Speaker, WhoSpeaks
from paceline.core.trace import SPEAKS, Decided


class _GroupState:
    """Who takes part in one group, in the order in which they came, and who speaks.

    begun: members that run, as far as is known; others have been announced. asked: by rank, after which term.
    """

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.members = dict.fromkeys(ranks)
        self.begun = set(ranks)
        self.speaker: int | None = ranks[0]
        self.term = 1
        self.asked: dict[int, int] = {}


class SpeakersCoordinator(Role):
    """Appoints the speakers; all other messages are those of the outer scheme's coordinator."""

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.map = scheme.rank_groups(place)
        self.states = [_GroupState(ranks) for ranks in self.map.groups]
        for state in self.states:
            self._explain(0.0, state, "the first of its group")

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Answers who speaks for the sender's group."""
        if not isinstance(message, WhoSpeaks):
            yield from super().on(now, src, message)
            return
        state = self.states[self.map.group_of[src]]
        state.asked[src] = message.after
        yield from self._heard_of(now, state, src)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Appoints another speaker if the group has lost its own."""
        state = self.states[self.map.group_of[rank]]
        if rank not in state.members:
            return
        del state.members[rank]
        state.asked.pop(rank, None)
        state.begun.discard(rank)
        if rank == state.speaker:
            yield from self._appoint(now, state, f"worker {rank}, who spoke for it, is gone")

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Takes a newcomer into its group, as the last one that would speak."""
        state = self.states[self.map.group_of[rank]]
        state.members.setdefault(rank)
        yield from self._heard_of(now, state, rank)

    def _heard_of(self, now: float, state: _GroupState, rank: int) -> Iterator[Tell | Reply]:
        """Answers a member that has asked and is known to have come; appoints it if nobody speaks."""
        if rank not in state.members or rank not in state.asked:
            return
        state.begun.add(rank)
        if state.speaker is None:
            yield from self._appoint(now, state, "nobody else is there")
        else:
            yield from self._answer(state)

    def _appoint(self, now: float, state: _GroupState, why: str) -> Iterator[Tell | Reply]:
        state.speaker = next((rank for rank in state.members if rank in state.begun), None)
        if state.speaker is None:
            return
        state.term += 1
        self._explain(now, state, why)
        yield from self._answer(state)

    def _explain(self, now: float, state: _GroupState, why: str) -> None:
        """Writes to the trace who speaks for a group, and why."""
        if self.note and state.speaker is not None:
            verdict = f"{SPEAKS} {self.map.group_of[state.speaker]}"
            self.note(Decided(at=now, party="coordinator", rank=state.speaker, verdict=verdict, reason=why))

    def _answer(self, state: _GroupState) -> Iterator[Reply]:
        """Answers those who asked, as far as there is an answer."""
        if state.speaker is None:
            return
        for rank in [rank for rank, after in state.asked.items() if after < state.term and rank in state.members]:
            del state.asked[rank]
            yield Reply(rank, Speaker(rank=state.speaker, term=state.term))
