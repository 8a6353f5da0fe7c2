"""Asks the coordinator for what a worker needs before it trains: leases of data, quotas of samples, pieces of shares.

The first two are asked for ahead, so that nobody waits for the answer while there is work.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Mapping

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.effects import Data, Piece
from paceline.core.errors import PeerLost, TimedOut
from paceline.core.parties.lease_reports import HandedSamples
from paceline.core.samples.left_shares import bounds_of_take
from paceline.core.samples.shares_kept import SharePiece
from paceline.engine.data.batches import Batches
from paceline.engine.data.leased_batches import LeasedBatches
from paceline.live.control.session import Session
from paceline.runtime.checkpointing.worker_position import Dealt, DealtShares, Position
from paceline.runtime.worker.loop.sample_counts import ByQuota
from paceline.runtime.worker.loop.sample_dealer import SampleDealer
from paceline.runtime.worker.steps.step_timer import Stopwatch


class LeaseClient:
    """Asks the coordinator for leases. `samples`: of an epoch; `size`: of a lease."""

    def __init__(self, session: Session, samples: int, size: int, timeout_s: float) -> None:
        self._session, self._timeout_s = session, timeout_s
        self._want = control.Want(samples=samples, size=size)
        session.tell(self._want)

    def next(self) -> Piece | None:
        """Returns the next lease, and asks for the one after it; None once the run is over. Raises TimedOut or
        PeerLost."""
        leases = self._session.leases
        try:
            lease = leases.get(timeout=self._timeout_s)
        except queue.Empty:
            me = self._session.node.me
            raise TimedOut(f"{me} waited {self._timeout_s:.0f} s for samples from the coordinator") from None
        if lease is None:
            leases.put(None)  # for whoever asks again
            return None
        if not self._session.over.is_set():
            self._session.tell(self._want)
        return lease.epoch, lease.start, lease.stop

    @property
    def epochs(self) -> int:
        """Returns how many epochs are over."""
        return self._session.epochs


class LeasedPosition:
    """Knows which samples a worker works at, where they are leased, drawn from the queue of the first data set, or of
    shares of it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.stream: LeasedBatches | None = None
        self.dealer: SampleDealer | None = None
        self.share: Batches | None = None
        self._handed = HandedSamples()

    @property
    def data(self) -> Data:
        """Returns the samples that the mini-batch at hand is made of."""
        of = self.stream or self.dealer
        return of.taken if of else ()

    @property
    def samples_trained(self) -> int:
        """Returns the samples of the queue of which this incarnation has made steps; -1 where there is no queue."""
        return self.dealer.samples_trained if self.dealer else -1

    @property
    def trained_of_others(self) -> int:
        """Returns the samples of others' shares that this incarnation has trained; -1 where there are no shares."""
        return self.share.trained_of[False] if self.share else -1

    def dealt(self, position: Position) -> tuple[Dealt | None, DealtShares | None]:
        """Returns which samples this incarnation had trained at a position: of the queue, and of shares; None where
        that is not known."""
        queue, shares = None, None
        if position.drawn >= 0 and self.dealer is not None and self.dealer.log.is_whole:
            of_queue = self.dealer.log.first(position.drawn)
            queue = self.dealer.samples, [(epoch, start, stop) for epoch, start, stop, _ in of_queue]
        if position.of_others >= 0 and self.share is not None:
            shares = self.share.share_size, self.share.pieces_trained(position.position, position.of_others)
        return queue, shares

    def handed_over(self) -> None:
        """Notes that the mini-batch at hand was handed over."""
        if of := self.stream or self.dealer:
            of.forget_taken()

    def answered(self, *, anew: bool) -> None:
        """Notes that the scheme asks for work, so nothing of what was handed over is under way.

        anew: the servers went back, and the scheme has started anew.
        """
        past = self._handed.asks_for_work(self.stream.handed, anew=anew) if self.stream else None
        if past:
            self._tell(past)

    def tell_past(self) -> None:
        """Tells the coordinator, after a server was replaced, which samples will not come any more."""
        if self.stream:
            self._tell(self._handed.past())

    def _tell(self, past: control.Past) -> None:
        with contextlib.suppress(PeerLost):  # without a coordinator the run ends in any case
            self._session.tell(past)


def quotas_of(session: Session, timeout_s: float, epoch: int = 0, *, divided: bool) -> ByQuota:
    """Returns the quotas of a run that ends after so many samples, asked for from the coordinator.

    Its calls raise TimedOut or PeerLost without a coordinator.
    """

    def ask(samples: int, batch: int) -> None:
        """Asks the coordinator for samples; the answer comes later. For 0 it has to know what was trained."""
        if not samples:
            session.reports.flush()
        session.tell(control.Ask(samples=samples, batch=batch, epoch=epoch))

    def answer(wait: bool) -> int | None:
        """Returns the samples that were granted, 0 at the end of the run; None where they are not there yet.

        Raises TimedOut where it shall wait and nothing comes.
        """
        try:
            if session.over.is_set():
                return 0
            return session.quotas.get(block=wait, timeout=timeout_s)
        except queue.Empty:
            if not wait:
                return None
            raise TimedOut(f"{session.node.me} waited {timeout_s:.0f} s for samples from the coordinator") from None

    return ByQuota(ask, answer, session.node.now, divided=divided)


class ShareClient:
    """Asks for what workers that left had not trained of their shares, and reports what this one has: of one data set.

    It is a `LeftPieces`. `core/coordination/sample_leases.py` has the messages.

    stream          which data set of the loop this is, by number
    sizes           the shares in an epoch, by rank
    epochs_max      so many whole epochs the run has, by its rule; 0: it has none
    steps_of_epoch  of this worker's share
    steps           returns how many it has made, if it may wait for the others at its end; else 0
    back            it is another incarnation, or came late
    fixed           each worker has as many epochs of its share as its own loop asks for
    skipped         something is left by nobody who is gone, but from before a resume
    """

    def __init__(
        self,
        session: Session,
        rank: int,
        stream: int,
        sizes: tuple[int, ...],
        *,
        epochs_max: int,
        steps_of_epoch: int,
        steps: Callable[[], int],
        back: bool,
        fixed: bool,
        skipped: bool,
        watch: Stopwatch,
        timeout_s: float,
    ) -> None:
        self._session, self._rank, self._stream, self._sizes = session, rank, stream, sizes
        self._epochs_max, self._steps_of_epoch, self._steps = epochs_max, steps_of_epoch, steps
        self._fixed, self._skipped, self._watch, self._timeout_s = fixed, skipped, watch, timeout_s
        self._event = loop_messages.IS_BACK if back else loop_messages.BEGINS
        self._in_vain: tuple[int, frozenset[int]] | None = None  # epochs, and who had left, when nothing was left

    def begin(self, trained: Mapping[bool, int], epochs: int | None) -> None:
        """Reports what this worker has trained, of its share (True) and of pieces, and that its loop goes on until so
        many epochs are over."""
        self._report(self._event, trained, epochs)

    def leave(self, trained: Mapping[bool, int], epochs: int | None) -> None:
        """Reports what this worker has trained, so that others get the rest."""
        finished = self._fixed and epochs is not None and trained[True] >= epochs * self._sizes[self._rank]
        self._report(loop_messages.FINISHES if finished else loop_messages.LEAVES, trained, epochs)

    def take(self, samples: int, epochs: int, *, trained: int, ends: bool) -> SharePiece | None:
        """Returns a piece of at most so many samples; None where none is left. trained: those of earlier pieces.

        Who has left is known here a moment later than to the coordinator, which is asked at the end in any case.
        """
        for bound in bounds_of_take(epochs, self._epochs_max):
            now = bound, frozenset(self._session.departed)
            if now == self._in_vain or not (ends or now[1] or self._skipped or bound == self._epochs_max):
                continue
            piece = self._ask(samples, bound, trained, self._steps() if ends else 0)
            if piece is not None:
                return piece
            self._in_vain = now
        return None

    def _ask(self, samples: int, epochs: int, taken: int, steps: int) -> SharePiece | None:
        session = self._session
        if session.over.is_set() or session.notice:
            return None
        session.tell(
            loop_messages.TakeShare(stream=self._stream, wanted=samples, epochs=epochs, taken=taken, steps=steps)
        )
        answer = self._held() if steps else self._answer()
        if answer is None or answer.start == answer.stop:
            return None
        return SharePiece(answer.start // self._sizes[answer.rank], answer.rank, answer.start, answer.stop)

    def _held(self) -> loop_messages.ShareTaken | None:
        """Waits until others leave something, or cannot any more; the coordinator ends the wait for a lost one."""
        node = self._session.node
        began = node.now()
        with self._watch.held():
            answer = self._session.mailbox.taken.get()
        node.times.held(node.now() - began)
        return answer

    def _answer(self) -> loop_messages.ShareTaken | None:
        try:
            return self._session.mailbox.taken.get(timeout=self._timeout_s)
        except queue.Empty:
            who = self._session.node.me
            raise TimedOut(f"{who} waited {self._timeout_s:.0f} s for samples from the coordinator") from None

    def _report(self, event: str, trained: Mapping[bool, int], epochs: int | None) -> None:
        self._session.tell(
            loop_messages.ShareTrained(
                stream=self._stream,
                sizes=self._sizes,
                own=trained[True],
                taken=trained[False],
                steps=self._steps_of_epoch * (epochs or 0),
                event=event,
            )
        )
