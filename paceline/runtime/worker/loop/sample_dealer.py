"""Draws samples from the coordinator's queue, ahead of need, so that nobody waits for an answer.

worker                     coordinator
Draw             ->        Drawn, without samples where none are left for this loop
Draw of none     ->        (the worker leaves: what it has not trained is for the others)
"""

from __future__ import annotations

import queue
from collections import deque

from paceline.core.coordination import loop_messages
from paceline.core.effects import Data, Piece
from paceline.core.errors import TimedOut
from paceline.core.samples.batch_cut import batch_of, leaves_one
from paceline.core.samples.dealt_log import DealtLog
from paceline.live.control.session import Session

AHEAD_SECONDS = 0.1
"""A worker asks for what it trains in so many seconds."""


class SampleDealer:
    """Gives a stream its samples, and says how large the next mini-batch may be (it is an `Allowance`).

    `stream`: which data set of the loop this is, by number. `samples`: its length. `behind`: places that were trained
    before the run. `done`: which of them are known to be in the model. `divided`: others draw from the queue too.
    """

    def __init__(
        self,
        session: Session,
        stream: int,
        samples: int,
        timeout_s: float,
        behind: int = 0,
        done: Data = (),
        *,
        divided: bool = True,
    ) -> None:
        self._session, self._stream, self.samples, self._timeout_s = session, stream, samples, timeout_s
        self._behind, self._done, self._divided = behind, done, divided
        self._answers = session.mailbox.dealt.setdefault(stream, queue.SimpleQueue())
        self._pieces: deque[Piece] = deque()
        self._recent: deque[Piece] = deque()  # the last ones handed out, which may be lost
        self.log = DealtLog()
        self._taken: deque[Piece] = deque()  # handed out since `forget_taken`
        self._held = self._handed = self._trained = 0  # samples: not handed out yet, handed out, trained
        self._exchanged = 0  # those of `_trained` that would not be lost with this worker
        self._epochs = 0  # for so many the loop goes on; 0: without end
        self._anew = 0  # so many from that on of which the next sample is
        self._asked_for: int | None = None  # under way: the epochs of that time
        self._asked_at, self._handed_before, self._wanted = session.node.now(), 0, 0
        self.ahead = 0  # samples: handed out to a loader, which has not given them to the loop yet
        self.ends_run = False  # has everything been given out, by a rule that ends the run?

    # ---- the stream --------------------------------------------------------------------------------------
    def extend(self, epochs: int | None, *, anew: bool = False) -> None:
        """Goes on for `epochs` more epochs of all workers together; None: without end.

        `anew`: where these are over, it goes on for as many from the one that the run is at.
        """
        self._epochs = self._epochs + epochs if epochs else 0
        self._anew = epochs or 0 if anew else 0

    def take(self, samples: int) -> Piece | None:
        """Returns a piece of at most so many samples, all of one epoch; None where none are left.

        Where an epoch ends no single sample is left (`batch_of`).
        """
        if not self._held:
            self.size(samples, begins=True)
        if not self._pieces:
            return None
        epoch, start, end = self._pieces.popleft()
        ends = end == self.samples and self._divided
        stop = start + (batch_of(end - start, samples) if ends else min(end - start, samples))
        if stop < end:
            self._pieces.appendleft((epoch, stop, end))
        self._held -= stop - start
        self._handed += stop - start
        self._recent.append((epoch, start, stop))
        self._taken.append((epoch, start, stop))
        self.log.add(epoch, start, stop)
        return epoch, start, stop

    @property
    def samples_trained(self) -> int:
        """Returns the samples of which steps were made."""
        return self._trained

    @property
    def taken(self) -> Data:
        """Returns which samples the loop was given since `forget_taken`."""
        return self._given()[0]

    def forget_taken(self) -> None:
        """Notes that those samples were handed over."""
        self._taken = deque(self._given()[1])

    def _given(self) -> tuple[Data, Data]:
        """Returns what the loop was given of `_taken`, and what only a loader has, which is ahead of it."""
        left = sum(stop - start for _, start, stop in self._taken) - self.ahead
        given, ahead = list[Piece](), list[Piece]()
        for epoch, start, stop in self._taken:
            cut = start + min(max(0, left), stop - start)
            left -= cut - start
            given += [(epoch, start, cut)] if start < cut else []
            ahead += [(epoch, cut, stop)] if cut < stop else []
        return tuple(given), tuple(ahead)

    # ---- the sizes ---------------------------------------------------------------------------------------
    def size(self, batch: int, *, begins: bool) -> int:
        """Returns how many samples the next mini-batch has, at most `batch`; 0 for none, in this loop."""
        if self.ahead and not begins:
            return batch
        if self._asked_for is not None:
            self._receive(wait=False)
        if self._asked_for is None and self._held <= max(batch, self._wanted // 2):
            self._ask(batch)
        while self._held < batch or (self._divided and leaves_one(self._held, batch)):
            if self._asked_for is None:
                self._ask(batch)
            if not self._receive(wait=True):
                break
        if self._held >= batch:
            return batch_of(self._held, batch) if self._divided else batch
        # These are the last ones. What is left of two epochs stays two batches, as in a loop that trains alone, but
        # for a single sample.
        of_one_epoch = sum(stop - start for epoch, start, stop in self._pieces if epoch == self._pieces[0][0])
        return self._held if of_one_epoch == 1 else of_one_epoch

    def trained(self, samples: int) -> None:
        """Notes that a step was made of everything that the loop was given."""
        self._trained = self._handed - self.ahead

    def exchanged(self, held: int = 0, alone: int = 0) -> None:
        """Notes that an exchange had all that was trained so far.

        held: of the last samples, those that may yet be lost with a worker that has them; alone: with this one.
        """
        self._exchanged = max(self._exchanged, self._trained - alone)
        more = sum(stop - start for _, start, stop in self._recent) - (self._handed - self._trained + held)
        while self._recent and more > 0:
            epoch, start, stop = self._recent.popleft()
            if more < stop - start:
                self._recent.appendleft((epoch, start + more, stop))
            more -= stop - start

    def lost(self, samples: int) -> None:
        """Deals the last `samples` that were trained once more."""
        self.log.is_whole = False
        behind, again = self._handed - self._trained, deque[Piece]()
        kept = deque[Piece]()  # what the loop has, and has not trained
        while self._recent and samples > 0:
            epoch, start, stop = self._recent.pop()
            skipped = min(behind, stop - start)
            behind -= skipped
            if skipped:
                kept.appendleft((epoch, stop - skipped, stop))
            cut = max(start, stop - skipped - samples)
            if cut < stop - skipped:
                again.appendleft((epoch, cut, stop - skipped))
                samples -= stop - skipped - cut
            if start < cut:
                self._recent.append((epoch, start, cut))
        self._recent.extend(kept)
        back = sum(stop - start for _, start, stop in again)
        self._pieces.extendleft(reversed(again))
        self._held += back
        self._handed -= back
        self._trained -= back
        self._exchanged = min(self._exchanged, self._trained)

    def leave(self) -> None:
        """Reports to the coordinator what was trained, so that others get the rest. The last exchange has all of it."""
        self.exchanged()
        self._draw(0, 1)

    def _ask(self, batch: int) -> None:
        """Asks for what this worker trains in AHEAD_SECONDS at its present speed, at least one mini-batch."""
        now = self._session.node.now()
        speed = (self._handed - self._handed_before) / max(now - self._asked_at, 1e-6)
        self._wanted = max(1, round(speed * AHEAD_SECONDS / batch)) * batch
        self._asked_for, self._asked_at, self._handed_before = self._bound, now, self._handed
        self._draw(self._wanted, batch)

    @property
    def _bound(self) -> int:
        """Returns the epochs of which the next samples may be; 0: of any."""
        return 0 if self._anew and not self._held else self._epochs

    def _draw(self, wanted: int, batch: int) -> None:
        """Sends a request, with what others need not train though this worker is lost."""
        told = {"stream": self._stream, "samples": self.samples, "epochs": self._bound, "trained": self._exchanged}
        told["behind"] = self._behind
        self._session.tell(loop_messages.Draw(wanted=wanted, batch=batch, done=self._done, **told))

    def _receive(self, *, wait: bool) -> bool:
        """Takes the answer, if it is there; returns True if there may be more."""
        try:
            if self._session.over.is_set():
                return False
            dealt = self._answers.get(block=wait, timeout=self._timeout_s)
        except queue.Empty:
            if not wait:
                return True
            who = self._session.node.me
            raise TimedOut(f"{who} waited {self._timeout_s:.0f} s for samples from the coordinator") from None
        if dealt is None:  # the run is over
            return False
        asked_for, self._asked_for, self._done = self._asked_for, None, ()
        self.ends_run = dealt.over
        self._add(dealt.start, dealt.stop)
        return dealt.start < dealt.stop or asked_for != self._bound  # the loop goes on for longer than it did then

    def _add(self, start: int, stop: int) -> None:
        """Places of one epoch, as a piece of it; one with the last where that ends there."""
        if start == stop:
            return
        self._held += stop - start
        epoch, at = divmod(start, self.samples)
        if self._anew:
            self._epochs, self._anew = max(self._epochs, epoch + self._anew), 0
        piece = (epoch, at, at + stop - start)
        if self._pieces and self._pieces[-1][0] == epoch and self._pieces[-1][2] == at:
            piece = (epoch, self._pieces.pop()[1], piece[2])
        self._pieces.append(piece)
