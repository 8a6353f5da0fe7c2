"""Gossip schemes share this: workers whose models have weights, and that pass shares of both on (push-sum).

A worker holds a model w and its weight, its *mass*. Shares of it travel between workers:

    give:     weight <- weight / m;   send (w, weight)           to m - 1 others, so that m equal shares remain
    absorb:   w <- (weight w + sum_s weight_s w_s) / (weight + sum_s weight_s);   weight <- weight + sum_s weight_s

Over all workers and all shares under way, sum(weight) and sum(weight w) change by local steps alone (push-sum, Kempe,
Dobra & Gehrke 2003), so the model of the whole is sum(weight w) / sum(weight). No mass is ever lost:

    a share comes to a worker that has left      it goes back to its sender (Returned)
    a worker leaves                              it hands over all it has to another one, or to the next that comes
    a worker joins late                          it asks another one (Begin), which gives it half of its mass
    it asks again, though it was given some      it is answered, and gets nothing
    a share comes that was not expected          it waits until its sender has left: only a leaver gives unasked;
                                                 who has no mass takes all shares
    nobody that is asked has any mass            the lowest rank begins with a mass of 1; it answers those of higher
                                                 ranks that have asked it then
    one that is asked declines                   nobody begins before the coordinator says that it has gone: until then
                                                 it hands its mass over, maybe to the one that asks

Weights are whole multiples of QUANTUM. A share is rounded down to one and its giver keeps the rest, so sums of weights
have no rounding error. No weight can become so small that it is zero: a worker with less than a quantum for each share
gives nothing.

The scheme's `memory` says what absorbing does to the memory m of the worker's own optimizer (momentum, Adam's moments):

    keep:     m stays as it is
    reset:    m <- nothing, once, before the first local update after it

What is not finite spoils nobody's model:

    a gradient, or weights after local steps   the worker's model stays as it was; m <- nothing, if it was used
    many of these                              the coordinator hears of each; it expels the worker, or ends the run
    another worker's model                     its weight counts for the receiver's own model; so does that of one of a
                                               wrong length
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar

from paceline.core.effects import KEEP, RESET, Call, Computed, Effect, Reply, Tell
from paceline.core.errors import Diverged, PeerLost
from paceline.core.message import STATE, Nature, message
from paceline.core.paramserver.peer_check import refusal
from paceline.core.role import Remembering, Role, RoleContext
from paceline.core.spans import updated
from paceline.core.validation import bounds
from paceline.core.vector import is_finite

QUANTUM = 2.0**-40
"""The unit of weights. Their sums are exact up to 2^53 units: with a weight of 1 each, 8,192 workers."""


MASS_MAX = 2.0
"""The most mass a worker can have, for each worker of the run, unless some message was false.

A worker cuts its own mass to it: otherwise it would pass the false number on, and be expelled for it."""

AT_ONCE = -1
"""The round of a share that is absorbed with the next one, whatever the worker's round is."""

UNSOUND_MAX = 8
"""Results in a row that are not finite, by which the model has diverged where no coordinator counts them."""


def whole(weight: float) -> float:
    """Returns `weight` rounded down to a multiple of QUANTUM."""
    return weight // QUANTUM * QUANTUM


def _added(held: tuple[Any, float] | None, w: Any, weight: float) -> tuple[Any, float]:
    """Returns the sum of weight w and that of weights, with one share more."""
    return (w * weight, weight) if held is None else (held[0] + w * weight, held[1] + weight)


@message("mass.Share")
class Share:
    """Carries a model and its weight; `round` is the sender's, where rounds matter."""

    carries: ClassVar[Nature] = STATE

    w: bounds.Whole
    weight: bounds.Mass
    round: bounds.RoundNumber = 0


@message("mass.Returned")
class Returned:
    """Brings back a share that its receiver, who has left, could not use."""

    w: bounds.Whole
    weight: bounds.Mass
    round: bounds.RoundNumber = 0


@message("mass.Begin")
class Begin:
    """Asks for half of the receiver's mass, for a newcomer that has none. Answered by itself, behind the share.

    A newcomer that has asked all others asks itself, and answers when there is something new.
    """


class Holder(Role):
    """This worker has a mass. Shares that arrive wait until the loop absorbs them. Its scheme has a parameter `memory`.

    mixed: the model has absorbed another worker's since the last local update. unsound: results of this worker in a row
    that were not finite. spoilt: its optimizer has made local steps that led to such weights.

    A resumed worker goes on from the model that it had. Workers are kept at moments of their own, between which shares
    travel, so their masses begin anew, all alike.
    """

    saved: ClassVar[tuple[str, ...]] = ("w", "mixed", "spoilt")
    transient: ClassVar[tuple[str, ...]] = (
        *("weight", "most", "unsound", "away", "leaving", "changes", "left", "heir", "inbox", "poor", "asked_at"),
        *("waits", "begins", "unanswered", "asking", "served", "unasked"),
    )
    updates_alone = True
    mixed = False
    unsound = 0
    spoilt = False

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.weight = 1.0
        self.most = MASS_MAX * len(self.workers)
        self.away: set[int] = set()  # workers known to have left
        self.leaving: set[int] = set()  # those of them of which the coordinator has not said so
        self.changes = 0  # how often it has said that somebody has come or gone
        self.left = False
        self.heir: int | None = None  # who has got this worker's mass
        self.inbox: dict[int, tuple[Any, float]] = {}  # by round: sum of weight w, sum of weights
        self.poor: set[int] = set()  # who had no mass to give, as far as this one knows
        self.asked_at = 0  # what `changes` was when the loop asked last
        self.waits = False  # the loop has asked this one itself, which has not answered
        self.begins = False  # the loop has to get a mass first
        self.unanswered: list[int] = []  # who has asked for mass meanwhile, and waits
        self.asking: int | None = None  # whom this one has asked for mass
        self.served: set[int] = set()  # who has got mass of this one for the asking, and needs no more
        self.unasked: dict[int, tuple[Any, float]] = {}  # by sender: shares that nobody expected, as in `inbox`

    def enter(self) -> Generator[Effect, Any, None]:
        """Gets a mass from another worker if this one has none; every loop begins with it."""
        while not self.weight:
            all_are_poor = set(self.workers) - self.away - {self.me} <= self.poor
            peer = self.anybody()
            if all_are_poor and self.leaving:
                peer = self.me
            elif peer is None or (all_are_poor and self._is_first_here()):
                self.weight = 1.0
                break
            self.asked_at = self.changes
            yield from self._ask_for_mass(peer)
            self.absorb()
        yield from self._answer_for_mass()

    def _ask_for_mass(self, peer: int) -> Generator[Effect, Any, None]:
        """Asks `peer`, which is this one itself when it waits, and notes whether that one had any.

        What has become of it may be out of date if the coordinator has told of changes meanwhile.
        """
        self.asking = peer
        try:
            yield Call(peer, Begin())
            if peer != self.me and self.asked_at == self.changes:
                self.poor.add(peer)
        except PeerLost:
            if self.asked_at == self.changes:
                self.not_taken(peer)
                self.poor.clear()  # they may have got something since they were asked
        self.asking = None

    def _answer_for_mass(self) -> Iterator[Tell | Reply]:
        """Answers those that have asked for mass before this one had any, with a share if it has some."""
        self.begins = False
        while self.unanswered:  # looked up anew each time: between two of the loop's replies somebody may leave
            rank = self.unanswered.pop(0)
            yield from self._give_to_newcomer(rank)
            yield Reply(rank, Begin())

    def _give_to_newcomer(self, rank: int) -> Iterator[Tell]:
        """Gives half of the mass to a worker that has asked for it, once: a liar could ask until nothing is left.

        Whether it has come late is not looked at, as its question may overtake the news of that.
        """
        before = self.weight
        if rank not in self.served:
            yield from self.give((rank,))
        if self.weight < before:
            self.served.add(rank)

    def _is_first_here(self) -> bool:
        """Returns True if this one has the lowest rank here, by which all agree who begins where nobody has any mass.

        It happens when whoever had mass failed before anybody else got some.
        """
        return self.me < min(set(self.workers) - self.away - {self.me})

    def not_taken(self, rank: int) -> None:
        """Sends nothing more to a worker that takes nothing: it leaves or is lost, as the coordinator will say."""
        if rank not in self.away and rank != self.me:
            self.away.add(rank)
            self.leaving.add(rank)

    def _is_back(self, rank: int) -> None:
        """Counts a worker among those that messages may go to."""
        self.away.discard(rank)
        self.leaving.discard(rank)

    def _go_on(self) -> Iterator[Reply]:
        """Lets the loop go on if it waits and there is something new: a share has come, or somebody came or went."""
        if self.waits and (self.inbox or self.asked_at != self.changes):
            self.waits = False
            yield Reply(self.me, Begin())

    def absorb(self, round: int | None = None) -> None:
        """Takes in the shares that have arrived, of rounds up to `round` (None: of all)."""
        for key in sorted(key for key in self.inbox if round is None or key <= round):
            total, weight = self.inbox.pop(key)
            if not weight:
                continue  # from a newcomer that has no mass yet
            self.w = (self.w * self.weight + total) * (1.0 / (self.weight + weight))
            self.weight = min(self.weight + weight, self.most)
            self.mixed = True

    def memory(self) -> str:
        """Returns what to do with the optimizer's memory before the local update that is made now: KEEP or RESET it."""
        wanted: str = RESET if self.spoilt else self.scheme.memory if self.mixed else KEEP
        self.mixed = self.spoilt = False
        return wanted

    def updated(self, w: Any, c: Computed) -> Any:
        """Returns `w` after a local update with the gradient of `c`; `w` itself where that is not finite."""
        if not self.is_sound(c.g):
            return w
        if self.memory() == RESET and isinstance(self.update, Remembering):
            self.update.reset()
        return updated(self.update, w, c.g, c.samples, c.unused)

    def trained(self, x: Any) -> Any:
        """Returns the weights after local steps that led to `x`: these, or the present ones where `x` is not finite."""
        if self.is_sound(x):
            return x
        self.spoilt = True
        return self.w

    def is_sound(self, v: Any) -> bool:
        """Returns True if `v`, which this worker has computed, is finite, and says so to whoever counts that.

        Raises Diverged when too many were not and nobody counts.
        """
        self.unsound = 0 if is_finite(v) else self.unsound + 1
        if self.place.own is not None:
            self.place.own.judged(finite=not self.unsound)
        elif self.unsound >= UNSOUND_MAX:
            raise Diverged(
                f"the model has diverged, or the machine of worker {self.me} is at fault: its last {self.unsound} "
                "results had NaN or infinity; lower --lr or give --clip-norm"
            )
        return not self.unsound

    def refuses(self, now: float, src: int, v: Any) -> bool:
        """Returns True, and notes it, if the vector `v` of worker `src` is not finite."""
        if is_finite(v):
            return False
        refusal(self.note, now, self.me, src)
        return True

    def give(self, to: tuple[int, ...], round: int = 0) -> Generator[Tell, Any, None]:
        """Sends an equal share to each of `to` that is still there, and keeps one; nothing if a
        share is below a quantum.
        """
        there = [rank for rank in to if rank not in self.away]
        w, share = self.w, whole(self.weight / (1 + len(there)))
        if not share:
            return
        self.weight -= share * len(there)
        for rank in there:
            try:
                yield Tell(rank, Share(w=w, weight=share, round=round))
            except PeerLost:  # it never left this worker
                self.not_taken(rank)
                self._put(w, share, round)

    def anybody(self) -> int | None:
        """Returns another worker that is still there, drawn at random; None when this is the only one."""
        if len(self.away) + 1 >= len(self.workers):
            return None
        while True:
            rank = self.workers[self.rng.randrange(len(self.workers))]
            if rank != self.me and rank not in self.away:
                return rank

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Keeps shares that arrive until the loop absorbs them; after this worker has left they go
        back or on to its heir.
        """
        match message:
            case Share(w=w, weight=weight, round=round) if self.left:
                yield Tell(src, Returned(w=w, weight=weight, round=round))
            case Share(w=w, weight=weight, round=round):
                w = self.w if self.refuses(now, src, w) else w
                if not self.weight or src in self.away or self.expects(src, round):
                    self._put(w, weight, round)
                    yield from self._go_on()
                else:
                    self.unasked[src] = _added(self.unasked.get(src), w, weight)
            case Returned(w=w, weight=weight, round=round):
                self.not_taken(src)
                self._put(self.w if self.refuses(now, src, w) else w, weight, round)
                if self.left:
                    yield from self._hand_over()
            case Begin() if src == self.me:
                self.waits = True
                yield from self._go_on()
            case Begin():
                self._is_back(src)  # it asks, so it is here: its message may overtake the change of membership
                if not self.weight:
                    self.absorb()  # this one begins, too, and what it was sent since it asked would count as none
                if self.begins and not self.weight and self.me < src:
                    # Two that begin would otherwise ask each other again and again until the lower one has begun. Who
                    # waits does so for a lower rank, so not in a circle.
                    self.unanswered.append(src)
                    return
                yield from self._give_to_newcomer(src)
                yield Reply(src, message)
            case _:
                yield from super().on(now, src, message)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Sends nothing more to a worker that has left, and asks those again that had nothing to give."""
        self.away.add(rank)
        self.leaving.discard(rank)
        self.served.discard(rank)
        self._take_unasked(rank)
        self.unanswered = [other for other in self.unanswered if other != rank]
        self.poor.clear()  # it may have left what it had to one of them
        self.changes += 1
        yield from self._go_on()

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Counts a worker again among those that messages may go to.

        One that has left with its mass, because nobody was there who could take it, hands it over now.
        """
        self._is_back(rank)
        self.served.discard(rank)
        self.poor.discard(rank)
        self.changes += 1
        yield from self._go_on()
        if self.left and self.weight:
            yield from self._hand_over()

    def on_refused(self, now: float, rank: int, message: Any) -> Iterator[Tell | Reply]:
        """Lets the weight of a share that was dropped count for the own model, or it would be missing in the mean."""
        if isinstance(message, Share) and 0.0 < message.weight <= self.most and not self.left:
            self._put(self.w, message.weight, AT_ONCE)
            yield from self._go_on()

    def finish(self, now: float) -> Iterator[Tell | Reply]:
        """Answers everybody who has asked for mass: this worker gets none any more."""
        yield from self._answer_for_mass()

    def join_state(self) -> dict[str, Any]:
        """Returns what a newcomer takes over; it begins without weight, so that no mass is made."""
        return {**super().join_state(), "away": sorted(self.away - self.leaving)}

    def load_join_state(self, shown: Mapping[str, Any]) -> None:
        super().load_join_state(shown)
        self.weight, self.away = 0.0, set(shown["away"]) - {self.me}
        self.begins = True

    def leave(self, now: float) -> Iterator[Tell | Reply]:
        """Hands over all weight before it leaves: what stays behind would be missing in the mean."""
        self.left, self.waits, self.begins = True, False, False
        self.unanswered.clear()  # whoever waits for an answer here is told that there is none
        yield from self._hand_over()

    def model(self) -> tuple[Any, float]:
        """Returns the model as it would be with all arrived shares absorbed, and its mass; changes nothing."""
        w, weight = self.w, self.weight
        for total, more in (*self.inbox.values(), *self.unasked.values()):
            if not more:
                continue
            w = (w * weight + total) * (1.0 / (weight + more))
            weight += more
        return w, weight

    def latest(self) -> int:
        """Returns the last round that a share may be of here: a later one is taken for one of that round.

        Where all shares are absorbed at once there is one round, and so room for one share.
        """
        return 0

    def expects(self, src: int, round: int) -> bool:
        """Returns True if `src`, which stays, may have been to send a share of that round: it was asked for it."""
        return src == self.asking

    def _put(self, w: Any, weight: float, round: int) -> None:
        """Adds a share to those of its round that wait to be absorbed."""
        round = min(round, self.latest())
        self.inbox[round] = _added(self.inbox.get(round), w, weight)

    def _take_unasked(self, rank: int) -> None:
        """Counts what `rank` has sent unasked: it has left."""
        if (held := self.unasked.pop(rank, None)) is not None and held[1]:
            self._put(held[0] * (1.0 / held[1]), held[1], AT_ONCE)

    def _hand_over(self) -> Iterator[Tell]:
        """Sends all mass to a worker that is still there; the last worker keeps what there is."""
        for rank in list(self.unasked):  # its sender is about to leave, too
            self._take_unasked(rank)
        self.absorb()
        self.heir = self.anybody()
        if self.heir is not None:
            weight, self.weight = self.weight, 0.0
            yield Tell(self.heir, Share(w=self.w, weight=weight))
