"""A work queue of samples: each of an epoch is given to one worker at a time, until an update holds its gradient.

    a sample is    event                                                              then it is
    new            take: it is among the next samples of the epoch                    leased to one incarnation
    waiting        take: samples that were given back go out first                    leased to one incarnation
    leased         settled, applied: an update was made of it                         done
    leased         settled, late: the scheme dropped its gradient                     waiting
    leased         settled, refused: its gradient was rejected                        waiting; left out the second time
    leased         past: an earlier part of the lease has been handed over            waiting
    leased         fenced: its incarnation is over, servers hear no more of it        waiting
    done           restored: servers went back to a state that does not hold it       waiting

A piece is a run of samples: places `start` to `stop` (without it) in the order of an epoch. The queue knows no clock
and no network; the caller reports what happened, in the order in which servers and workers told it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from paceline.core.effects import Data, Piece
from paceline.core.trace import Leased

APPLIED, LATE, REFUSED = "applied", "late", "refused"
"""What becomes of a contribution: part of an update, dropped by the scheme, rejected by the gradient check."""


EPOCHS_KEPT = 2
"""For so many whole epochs it is remembered who was given what."""


class SampleRanges:
    """A set of places, kept epoch by epoch as sorted spans that do not touch."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        self.count = 0
        for piece in pieces:
            self.add(piece)

    def __iter__(self) -> Iterator[Piece]:
        """Yields the spans as pieces, in order."""
        for epoch in sorted(self._spans):
            for start, stop in self._spans[epoch]:
                yield epoch, start, stop

    def add(self, piece: Piece) -> None:
        """Adds a piece, and merges it with the spans that it touches: O(log n) to find them."""
        epoch, start, stop = piece
        spans = self._spans.setdefault(epoch, [])
        first = bisect_left(spans, start, key=lambda span: span[1])
        last = bisect_right(spans, stop, key=lambda span: span[0])
        touched = spans[first:last]
        if touched:
            start, stop = min(start, touched[0][0]), max(stop, touched[-1][1])
        spans[first:last] = [(start, stop)]
        self.count += stop - start - _length(touched)

    def discard(self, piece: Piece) -> None:
        """Removes a piece, if it or parts of it are in the set."""
        epoch, start, stop = piece
        touched, at = self._touched(piece)
        if not touched:
            return
        rest = [(touched[0][0], start), (stop, touched[-1][1])]
        kept = [(a, b) for a, b in rest if a < b]
        self._spans[epoch][at : at + len(touched)] = kept
        self.count += _length(kept) - _length(touched)
        if not self._spans[epoch]:
            del self._spans[epoch]

    def forget(self, epoch: int) -> None:
        """Removes all places of that epoch."""
        self.count -= self.of(epoch)
        self._spans.pop(epoch, None)

    def within(self, piece: Piece) -> Data:
        """Returns the parts of `piece` that are in the set."""
        epoch, start, stop = piece
        return tuple((epoch, max(a, start), min(b, stop)) for a, b in self._touched(piece)[0])

    def without(self, piece: Piece) -> Data:
        """Returns the parts of `piece` that are not in the set."""
        return difference(piece, self.within(piece))

    def end(self, epoch: int) -> int:
        """Returns the first place of that epoch behind all that are in the set."""
        spans = self._spans.get(epoch)
        return spans[-1][1] if spans else 0

    def of(self, epoch: int) -> int:
        """Returns how many places of that epoch are in the set."""
        return _length(self._spans.get(epoch, ()))

    def _touched(self, piece: Piece) -> tuple[list[tuple[int, int]], int]:
        """Returns the spans that have places of `piece`, and the index of the first."""
        epoch, start, stop = piece
        spans = self._spans.get(epoch, [])
        first = bisect_right(spans, start, key=lambda span: span[1])
        return spans[first : bisect_left(spans, stop, key=lambda span: span[0])], first


def _length(spans: Iterable[tuple[int, int]]) -> int:
    """Returns how many samples lie in spans."""
    return sum(stop - start for start, stop in spans)


def _count(data: Data) -> int:
    """Returns how many samples lie in pieces of epochs."""
    return sum(stop - start for _, start, stop in data)


def difference(piece: Piece, parts: Iterable[Piece]) -> Data:
    """Returns `piece` without `parts` of it, which are in order."""
    epoch, at, end = piece
    found = []
    for _, start, stop in parts:
        if at < start:
            found.append((epoch, at, start))
        at = max(at, stop)
    if at < end:
        found.append((epoch, at, end))
    return tuple(found)


def overlap(a: Piece, b: Piece) -> Piece | None:
    """Returns the piece that is in both, or None."""
    start, stop = max(a[1], b[1]), min(a[2], b[2])
    return (a[0], start, stop) if a[0] == b[0] and start < stop else None


def joined(pieces: Iterable[Piece]) -> Data:
    """Returns the same pieces, with neighbours that follow one another joined."""
    found: list[Piece] = []
    for epoch, start, stop in pieces:
        if found and found[-1][0] == epoch and found[-1][2] == start:
            start = found.pop()[1]
        found.append((epoch, start, stop))
    return tuple(found)


class _Held:
    """Holds what one incarnation of a worker was given and has not settled: pieces in the order in which it trains
    them.

    granted: samples that it was given in all.
    """

    __slots__ = ("granted", "pieces")

    def __init__(self) -> None:
        self.granted = 0
        self.pieces: list[tuple[int, Piece]] = []  # with how many samples it was given before that piece

    def give(self, piece: Piece) -> None:
        """Notes a piece that was granted, and where it begins among all that this worker was granted."""
        self.pieces.append((self.granted, piece))
        self.granted += piece[2] - piece[1]

    def settle(self, data: Data) -> list[tuple[int, Piece]]:
        """Removes the samples of `data` that it has, and returns them."""
        found, rest = [], []
        for offset, piece in self.pieces:
            parts = sorted(part for wanted in data if (part := overlap(piece, wanted)))
            found += [(offset + part[1] - piece[1], part) for part in parts]
            rest += [(offset + part[1] - piece[1], part) for part in difference(piece, parts)]
        self.pieces = rest
        return found

    def before(self, samples: int) -> Data:
        """Returns the pieces among the first `samples` that it was given."""
        cut = [(e, a, min(b, a + samples - offset)) for offset, (e, a, b) in self.pieces if offset < samples]
        return tuple(cut)


class Leases:
    """Leases `samples` samples an epoch, `size` at a time; epoch follows epoch without end.

    done: the pieces that an earlier part of the run has trained. Raises ValueError for pieces that cannot exist.
    """

    def __init__(self, samples: int, size: int, done: Iterable[Piece] = ()) -> None:
        if samples < 1 or size < 1:
            raise ValueError(f"{samples} samples in leases of {size}: both must be 1 or more")
        self.samples, self.size = samples, size
        self._done, self._left_out, self._suspect = SampleRanges(), SampleRanges(), SampleRanges()
        self._waiting = SampleRanges()  # given back
        self._in_vain: dict[int, Data] = {}  # by rank: what was dropped of it since it took a lease
        self._next = (0, 0)  # epoch and place of the first sample that nobody was ever given
        self._held: dict[int, dict[int, _Held]] = {}  # by rank and incarnation
        self._given: dict[int, SampleRanges] = {}  # by rank: whatever it was given of the epochs from `_kept_from` on
        self._taken = SampleRanges(done := list(done))  # by anybody, likewise
        self._kept_from = 0
        self._epochs = 0
        self._twice = self._returned = self._dropped = self._undone = 0
        if done:
            self._next = (max(epoch for epoch, _, _ in done) + 1, 0)
            for piece in done:
                self._done.add(self._checked(piece))
            for epoch in range(self._next[0]):
                for part in self._done.without((epoch, 0, samples)):
                    self._waiting.add(part)
            self._count_epochs()

    # ---- what workers ask for ----------------------------------------------------------------------------
    def take(self, rank: int, incarnation: int) -> Piece:
        """Returns the next samples that nobody has; those that were given back go first.

        A worker does not get what it has just handed over in vain: one that is always late would have it for ever.
        """
        # Samples that were given back go first, so that epochs complete in order.
        piece = self._given_back(self._in_vain.pop(rank, ()))
        if piece is None:
            epoch, at = self._next
            stop = min(at + self.size, self.samples)
            piece = epoch, at, stop
            self._next = (epoch, stop) if stop < self.samples else (epoch + 1, 0)
        else:
            epoch, start, stop = piece
            piece = epoch, start, min(stop, start + self.size)
            self._waiting.discard(piece)
        self._held.setdefault(rank, {}).setdefault(incarnation, _Held()).give(piece)
        self._given.setdefault(rank, SampleRanges()).add(piece)
        self._taken.add(piece)
        return piece

    def _given_back(self, but: Data) -> Piece | None:
        """Returns the first piece that waits and has nothing of `but`."""
        for piece in self._waiting:
            for part in difference(piece, sorted(found for part in but if (found := overlap(piece, part)))):
                return part
        return None

    def past(self, rank: int, incarnation: int, handed: int) -> None:
        """The first `handed` samples of that incarnation are not under way any more: those that are not done wait for
        others.
        """
        held = self._held.get(rank, {}).get(incarnation)
        if held is not None:
            self._give_back(held, held.before(handed))

    # ---- what servers tell -------------------------------------------------------------------------------
    def settled(self, rank: int, fate: str, data: Data) -> None:
        """Takes what became of a contribution of `rank`, in whichever of its incarnations.

        Raises ValueError where it names samples that were never given to that worker; they stay what they were.
        """
        claimed, data = data, self._own(rank, data)
        self._settle(rank, fate, data)
        for piece in claimed:
            self._checked(piece)
        if _count(data) < _count(claimed):
            raise ValueError(f"samples {claimed} were not all given to worker {rank}")

    def _settle(self, rank: int, fate: str, data: Data) -> None:
        """Notes what became of a worker's samples: they are in an update, or go to another worker.

        Samples that are in two updates are counted. What a worker claims that has given them back is a false claim, and
        takes them from nobody: whoever holds them trains them, and if they wait, they go on waiting.
        """
        if fate != APPLIED:
            self._in_vain[rank] = (*self._in_vain.get(rank, ()), *data)
            self._drop(rank, fate == REFUSED, data)
            return
        self._remove(rank, data)
        for piece in data:
            self._twice += sum(b - a for _, a, b in self._done.within(piece))
            self._done.add(piece)
        self._count_epochs()

    def leave(self, rank: int, incarnation: int) -> bool:
        """Ends that incarnation. Returns True if it has leases left, so that the servers must be asked for them."""
        held = self._held.get(rank, {}).get(incarnation)
        return bool(held and held.pieces)

    def fenced(self, rank: int, incarnation: int, pending: Data) -> None:
        """Frees the leases of that incarnation: the servers accept nothing more of it.

        pending: samples in contributions that the servers have and may still apply.
        """
        held = self._held.get(rank, {}).get(incarnation)
        if held is None:
            return
        kept = held.settle(pending)
        self._give_back(held, tuple(piece for _, piece in held.pieces))
        held.pieces = kept
        self._forget(rank)

    def restored(self, done: Iterable[Piece]) -> None:
        """The servers are in an earlier state, in which just the samples in `done` are done.

        What is not done any more waits for others. Its worker does not send it again: after a rollback it begins anew,
        and a copy has whatever was told of a contribution (`Copies.after_replicated`).
        """
        # Workers' messages said what was done, so samples that were never given to anybody are taken out here.
        now = SampleRanges(part for piece in done if self._can_be(piece) for part in self._part(self._taken, piece))
        for piece in list(self._done):
            for part in now.without(piece):
                self._undone += part[2] - part[1]
                self._waiting.add(part)
        for piece in now:
            for rank in list(self._held):
                self._remove(rank, (piece,))
        self._done = now
        self._epochs = 0
        self._count_epochs()

    # ---- what it comes to --------------------------------------------------------------------------------
    @property
    def epochs(self) -> int:
        """Returns the number of whole epochs, of which every sample is done."""
        return self._epochs

    def account(self, at: float) -> Leased:
        """Returns the counts at the moment `at` of the run, as a record for the trace."""
        return Leased(
            at=at,
            epochs=self._epochs,
            done=self._done.count,
            twice=self._twice,
            returned=self._returned,
            dropped=self._dropped,
            undone=self._undone,
            left_out=self._left_out.count,
        )

    def reached(self, samples: int) -> bool:
        """Returns True if so many samples are done, the whole epochs in them to the last sample."""
        return self._epochs >= samples // self.samples and self._done.count + self._left_out.count >= samples

    def unsettled(self) -> Iterator[tuple[int, int]]:
        """Yields rank and incarnation of all that have leases."""
        for rank, incarnations in self._held.items():
            yield from ((rank, incarnation) for incarnation, held in incarnations.items() if held.pieces)

    def _drop(self, rank: int, refused: bool, data: Data) -> None:
        """Makes the samples of a dropped or rejected contribution wait for others.

        Samples rejected a second time are left out: the fault must be theirs.
        """
        for piece in self._remove(rank, data):
            again = self._suspect.within(piece) if refused else ()
            for part in again:
                self._left_out.add(part)
            for part in difference(piece, again):
                self._dropped += part[2] - part[1]
                self._waiting.add(part)
                if refused:
                    self._suspect.add(part)
        self._count_epochs()

    def _remove(self, rank: int, data: Data) -> Data:
        """Removes `data` from whichever incarnation of `rank` has it, and returns what it had."""
        found: list[Piece] = []
        for held in self._held.get(rank, {}).values():
            found += [piece for _, piece in held.settle(data)]
        self._forget(rank)
        return tuple(found)

    def _give_back(self, held: _Held, data: Data) -> None:
        """Makes the samples of `data` that `held` has wait for others."""
        for _, piece in held.settle(data):
            self._returned += piece[2] - piece[1]
            self._waiting.add(piece)

    def _forget(self, rank: int) -> None:
        """Forgets incarnations, except the last, that have no leases."""
        incarnations = self._held.get(rank, {})
        for incarnation in [
            incarnation
            for incarnation, held in incarnations.items()
            if not held.pieces and incarnation != max(incarnations)
        ]:
            del incarnations[incarnation]

    def _count_epochs(self) -> None:
        """Counts the epochs that are whole by now, and forgets who was given what of old ones."""
        while self._done.of(self._epochs) + self._left_out.of(self._epochs) >= self.samples:
            self._epochs += 1
        while self._kept_from < self._epochs - EPOCHS_KEPT:
            for places in (self._taken, *self._given.values()):
                places.forget(self._kept_from)
            self._kept_from += 1

    def _own(self, rank: int, data: Data) -> Data:
        """Returns the part of `data` that was ever given to `rank`."""
        return tuple(part for piece in data if self._can_be(piece) for part in self._part(self._given.get(rank), piece))

    def _part(self, given: SampleRanges | None, piece: Piece) -> Data:
        """Returns the part of `piece` that is in `given`; all of it for old epochs, of which nothing is kept."""
        if piece[0] < self._kept_from:
            return (piece,)
        return given.within(piece) if given else ()

    def _can_be(self, piece: Piece) -> bool:
        """Returns True if there is such a piece, in an epoch that has begun."""
        epoch, start, stop = piece
        return 0 <= epoch <= self._next[0] and 0 <= start < stop <= self.samples

    def _checked(self, piece: Piece) -> Piece:
        """Returns the piece. Raises ValueError if there cannot be such a one."""
        epoch, start, stop = piece
        if not self._can_be(piece):
            raise ValueError(f"samples {start} to {stop} of epoch {epoch} were given to nobody")
        return epoch, start, stop
