"""What a worker asks the coordinator for before it trains: leases of data, or quotas of samples.

Both are asked for ahead, so that nobody waits for the answer while there is work.
"""

from __future__ import annotations

import queue

from paceline.core.effects import Piece
from paceline.core.errors import TimedOut
from paceline.live.control.session import Session
from paceline.live.protocol import control_messages as control
from paceline.runtime.worker.sample_counts import ByQuota


class LeaseClient:
    """Asks the coordinator. `samples` of an epoch, `size` of a lease."""

    def __init__(self, session: Session, samples: int, size: int, timeout_s: float) -> None:
        self._session, self._timeout_s = session, timeout_s
        self._want = control.Want(samples=samples, size=size)
        session.tell(self._want)

    def next(self) -> Piece | None:
        """Raises TimedOut or PeerLost without a coordinator."""
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
        return self._session.epochs


def quotas_of(session: Session, timeout_s: float) -> ByQuota:
    """Of a run that ends after so many samples. Raises TimedOut or PeerLost without a coordinator."""

    def ask(samples: int, batch: int) -> None:
        session.tell(control.Ask(samples=samples, batch=batch))

    def answer(wait: bool) -> int | None:
        try:
            if session.over.is_set():
                return 0
            return session.quotas.get(block=wait, timeout=timeout_s)
        except queue.Empty:
            if not wait:
                return None
            raise TimedOut(f"{session.node.me} waited {timeout_s:.0f} s for samples from the coordinator") from None

    return ByQuota(ask, answer, session.node.now)
