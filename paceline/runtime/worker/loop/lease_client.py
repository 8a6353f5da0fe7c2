"""Asks the coordinator for what a worker needs before it trains: leases of data, or quotas of samples.

Both are asked for ahead, so that nobody waits for the answer while there is work.
"""

from __future__ import annotations

import contextlib
import queue

from paceline.core.coordination import control_messages as control
from paceline.core.effects import Data, Piece
from paceline.core.errors import PeerLost, TimedOut
from paceline.core.parties.lease_reports import HandedSamples
from paceline.engine.data.leased_batches import LeasedBatches
from paceline.live.control.session import Session
from paceline.runtime.worker.loop.sample_counts import ByQuota


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
    """Knows which leased samples a worker works at; nothing as long as none are leased."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.stream: LeasedBatches | None = None
        self._handed = HandedSamples()

    @property
    def data(self) -> Data:
        """Returns the samples that the mini-batch at hand is made of."""
        return self.stream.taken if self.stream else ()

    def handed_over(self) -> None:
        """Notes that the mini-batch at hand was handed over."""
        if self.stream:
            self.stream.forget_taken()

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


def quotas_of(session: Session, timeout_s: float) -> ByQuota:
    """Returns the quotas of a run that ends after so many samples, asked for from the coordinator.

    Its calls raise TimedOut or PeerLost without a coordinator.
    """

    def ask(samples: int, batch: int) -> None:
        """Asks the coordinator for samples; the answer comes later."""
        session.tell(control.Ask(samples=samples, batch=batch))

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

    return ByQuota(ask, answer, session.node.now)
