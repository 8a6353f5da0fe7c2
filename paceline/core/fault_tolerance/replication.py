"""Copies each server's slices to the next server before an update is answered.

    server s      update a slice;  Copied (a vector), ..., Complete  ->  server s + 1;   answers wait for
    server s + 1  keep them;  Kept  ->  server s                                         Kept, then go

What becomes of an answer (`hold`):

    state of the server                  the state behind the answer       the answer
    not begun: others are missing        any                               waits for the first copy
    next server is there                 not copied yet                    is copied now; waits for Kept
    next server is there                 on its way                        waits for Kept
    next server is there                 acknowledged by Kept              goes at once
    next server is lost                  any                               goes at once

Only the newest copy of a slice is kept. When a lost server is there again, `begin` sends it everything. Drivers lend
the ways: live ones (`paceline.live.state.replication`) and simulated (`paceline.sim.faults.servers.server_recovery`).
"""

from __future__ import annotations

import json
import operator
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.message import message
from paceline.core.role import Role, RoleContext
from paceline.core.validation import bounds


@dataclass(frozen=True, slots=True)
class SliceState:
    """All that a slice is made of: vectors as long as the slice, and values that JSON can hold."""

    vectors: dict[str, Any]
    facts: dict[str, Any]


@message("copies.Copied", plane="state")
class Copied:
    """Carries one vector of a slice, the `slice`-th of the sender's."""

    slice: bounds.Slice
    name: bounds.Name
    v: bounds.Asked


@message("copies.Complete", plane="state")
class Complete:
    """Says that all vectors of that slice have been sent. `facts`: JSON. `number` counts the copies of the slice."""

    slice: bounds.Slice
    number: bounds.Count
    facts: bounds.LongText


@message("copies.Kept", plane="state")
class Kept:
    """Says that copy `number` of a slice has arrived: the acknowledgement."""

    slice: bounds.Slice
    number: bounds.Count


class Copies(Role):
    """On each server, it has the server's slices kept by the server `after` it, and keeps those of the one `before` it.

    "Between two messages" below means that the caller holds the lock that keeps handlers of messages out.
    """

    def __init__(
        self,
        place: RoleContext,
        *,
        before: int,
        after: int,
        counts: Sequence[int],
        state_of: Callable[[int], SliceState],
        mark_of: Callable[[int], Hashable],
        tell: Callable[[int, int, Any], None],
        release: Callable[[Role, Iterable[Tell | Reply]], None],
    ) -> None:
        """`counts`: slices of this server, of the one before, and of the one after.

        On every server the number of its copies' receiver follows those of its own slices. `state_of` gives a slice's
        state to copy. `mark_of` a slice changes whenever it has to be copied again. `tell` sends a message to a
        server's slice; raises PeerLost. `release` sends messages that were held.
        """
        super().__init__(None, place)
        self._before, self._after = before, after
        self._own, self._kept, self._theirs = counts
        self._state_of, self._mark_of = state_of, mark_of
        self._tell_slice, self._carry_out = tell, release
        self._copied = False  # is the next server there?
        # Of the server before this one: vectors of a copy that is not complete, and the newest complete copy of each
        # slice.
        self._coming: dict[int, dict[str, Any]] = defaultdict(dict)
        self._held: dict[int, SliceState] = {}
        # What to do once the given copies of all own slices are acknowledged, in order.
        self._acts: deque[tuple[list[int], Callable[[], None]]] = deque()
        self.forget()

    @property
    def complete(self) -> bool:
        """Returns True if all that the server before this one holds is kept here."""
        return len(self._held) == self._kept

    @property
    def held(self) -> list[SliceState]:
        """Returns the copies kept here, in the order of their slices."""
        return [self._held[at] for at in range(self._kept)]

    def forget(self) -> None:
        """Drops all copies and held answers, between two messages.

        Workers ask again for the answers; nothing of this server is copied yet; what is kept of another server is out
        of date.
        """
        self._coming.clear()
        self._held.clear()
        self._numbers, self._answered = [0] * self._own, [0] * self._own
        self._marks: list[Hashable] = [None] * self._own
        self._waiting: list[deque[tuple[int, Role, list[Tell | Reply]]]] = [deque() for _ in range(self._own)]
        self._begun = False
        # Whoever waits for a copy must not wait for ever: nobody can keep it now.
        acts, self._acts = self._acts, deque()
        for _, act in acts:
            act()

    # ---- of this server ----------------------------------------------------------------------------------
    def begin(self) -> None:
        """Copies every slice, between two messages: all servers are there, and in the same view."""
        self._begun = self._copied = True
        for at in range(self._own):
            self._copy(at)

    def hold(self, at: int, role: Role, effects: Iterable[Tell | Reply]) -> list[Tell | Reply]:
        """Returns the effects that may go at once; the rest goes when the state behind it is on the next server."""
        now = list(effects)
        if not self._begun:  # a replacement would be made of the copy before this state
            self._waiting[at].append((self._numbers[at] + 1, role, now))
            return []
        if not self._copied:
            return now
        if self._mark_of(at) != self._marks[at]:
            self._copy(at)
        if not now or self._answered[at] >= self._numbers[at]:
            return now
        self._waiting[at].append((self._numbers[at], role, now))
        return []

    def after_replicated(self, act: Callable[[], None]) -> None:
        """Calls `act` once the present state of all slices is on the next server, or nobody can keep it; between two
        messages.

        Where copies have not begun that is the first one (`begin`): a replacement that was lost before it would be
        replaced by what the copy had.
        """
        if not self._begun:
            numbers = [number + 1 for number in self._numbers]
        else:
            numbers = self._numbers.copy() if self._copied else [0] * self._own
        self._acts.append((numbers, act))
        self._act()

    def _act(self) -> None:
        while self._acts and all(map(operator.le, self._acts[0][0], self._answered)):
            self._acts.popleft()[1]()

    def lost(self, who: int) -> None:
        """Another server is lost, between two messages: drops its half copies, or answers what waited for its Kept."""
        if who == self._before:
            self._coming.clear()
        if who == self._after:
            self._copied = False
            for at in range(self._own):
                self._release(at, self._numbers[at])

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Drops replies to worker `rank` that wait for a copy: they are not for its next incarnation."""
        for waiting in self._waiting:
            for _, _, effects in waiting:
                effects[:] = [of for of in effects if not (isinstance(of, Reply) and of.to == rank)]
        yield from ()

    def _copy(self, at: int) -> None:
        """Sends a slice to the next server: its vectors, then Complete with the number of this copy."""
        state = self._state_of(at)
        self._numbers[at] += 1
        self._marks[at] = self._mark_of(at)
        for name, v in state.vectors.items():
            self._tell(self._after, self._theirs, Copied(slice=at, name=name, v=v))
        self._tell(
            self._after, self._theirs, Complete(slice=at, number=self._numbers[at], facts=json.dumps(state.facts))
        )

    def _release(self, at: int, number: int) -> None:
        """Copy `number` of slice `at` is acknowledged, which acknowledges all before it: sends what waited for them."""
        self._answered[at] = max(number, self._answered[at])
        waiting = self._waiting[at]
        while waiting and waiting[0][0] <= number:
            _, role, effects = waiting.popleft()
            self._carry_out(role, effects)
        self._act()

    def _tell(self, who: int, slice: int, message: Any) -> None:
        try:
            self._tell_slice(who, slice, message)
        except PeerLost:
            self.lost(who)

    # ---- upon receiving ----------------------------------------------------------------------------------
    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Takes a part of a copy from the server before, or an acknowledgement from the server after this one.

        Raises ProtocolError for messages of any other server.
        """
        sender = self._after if isinstance(message, Kept) else self._before
        if src != sender:
            raise ProtocolError(f"server {src} sent {type(message).__name__}, which only server {sender} sends here")
        match message:
            case Copied(slice=at, name=name, v=v):
                self._coming[at][name] = v
            case Complete(slice=at, number=number, facts=facts):
                self._keep(at, json.loads(facts))
                self._tell(self._before, self._kept, Kept(slice=at, number=number))
            case Kept(slice=at, number=number) if at < self._own:
                self._release(at, number)
            case _:
                yield from super().on(now, src, message)

    def _keep(self, at: int, facts: dict[str, Any]) -> None:
        self._held[at] = SliceState(self._coming.pop(at, {}), facts)


def mark_of(role: Role | None) -> Hashable:
    """Returns a value that changes whenever a slice has to be copied again.

    A newcomer changes no version, but a copy that did not know it would count its next push twice, or not at all.
    Neither does a worker that tells its clock after all slices went back, but it tells it once: by a copy that did not
    know, the others would wait for it for ever. Nor does a contribution that is dropped; others may get its samples.
    """
    shift, untold = getattr(role, "shift", {}), getattr(role, "untold", ())
    return getattr(role, "version", 0), getattr(role, "samples_seen", 0), tuple(shift.items()), len(untold)
