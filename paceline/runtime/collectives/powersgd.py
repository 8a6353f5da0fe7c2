"""Carries means by the means of their low-rank factors, over whatever carries means: PowerSGD.

One mean of a model becomes two of its factors, P and Q, which are much smaller; `engine/vectors/low_rank.py`
computes them, and names the paper. What is not as long as the model, and what must be exact, is carried as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from paceline.core.collective.mean_server import Averaged, nobody_counts
from paceline.core.effects import EVERY_BIT, Mean
from paceline.core.errors import PacelineError, ProtocolError, Stopped
from paceline.core.paramserver.peer_check import OwnResults
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.engine.vectors.low_rank import LowRank
from paceline.live.protocol.pending_reply import PendingReply
from paceline.runtime.collectives.backends import LiveCarrier


class LowRankMeans:
    """Runs means one after the other on a thread of its own: each is two means, and the second depends on the first."""

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        rank: int,
        by_servers: Callable[[Mean], PendingReply],
        carrier: LiveCarrier | None,
        *,
        timeout_s: float,
        check: OwnResults | None = None,
    ) -> None:
        """`shapes`: of the model's tensors; `rank`: of the factors. `carrier` carries the factors' means; without one
        the servers do. `check`: judges this worker's vectors; None: all count.
        """
        self._carrier = carrier
        self._begin = carrier.begin if carrier is not None else by_servers
        self._shapes, self._rank, self._timeout_s, self._check = shapes, rank, timeout_s, check
        self._rows: dict[int, LowRank] = {}  # by series of means
        self._length = sum(map(math.prod, shapes))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="low-rank means")

    def begin(self, effect: Mean) -> PendingReply:
        """Queues a mean; the reply completes it. Errors of any kind reach the caller through the reply."""
        pending = PendingReply(f"Mean {effect.tag} by its factors", 1, FlatMemory())
        self._thread.submit(self._carry, effect, pending)
        return pending

    def drain(self) -> None:
        """Tells the carrier below to begin no mean any more."""
        if self._carrier is not None:
            self._carrier.drain()

    def traffic(self) -> tuple[int, int]:
        """Returns the bytes sent and received by the carrier below."""
        return self._carrier.traffic() if self._carrier is not None else (0, 0)

    def close(self) -> None:
        """Ends the thread, and closes the carrier below."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._carrier is not None:
            self._carrier.close()

    # ---- on the thread -----------------------------------------------------------------------------------
    def _carry(self, effect: Mean, pending: PendingReply) -> None:
        """Takes one mean and gives its result, or its error, to who waits."""
        try:
            averaged, seconds = self._mean(effect)
            pending.put(0, averaged, seconds)
        except (PacelineError, Stopped) as error:
            pending.fail(error)
        except Exception as error:  # nobody else would hear of it
            pending.fail(ProtocolError(f"{pending.what} failed: {error}"))

    def _mean(self, effect: Mean) -> tuple[Averaged, float]:
        """Returns the mean, and the seconds in which its bytes moved. Raises Diverged if nobody's vector may count."""
        if effect.series == EVERY_BIT or len(effect.v) != self._length:
            return self._exact(effect)
        row = self._rows.get(effect.series)
        if row is None:
            row = self._rows[effect.series] = LowRank(self._shapes, self._rank)
        if rejected := self._check is not None and self._check.rejects(effect.v, effect.weight):
            # The residual stays what it was: with this vector in it no later one would be finite.
            effect = replace(effect, v=effect.v * 0.0, weight=0.0)
        v: Any = effect.v
        p, weight, seconds = self._factor(effect, "P", row.factor(v, effect.weight))
        if rejected and not weight:
            raise nobody_counts(effect.tag)
        q, _, more = self._factor(effect, "Q", row.cofactor(p))
        return Averaged(v=row.result(q), weight=weight), seconds + more

    def _factor(self, effect: Mean, name: str, v: Flat) -> tuple[Any, float, float]:
        """Returns the mean of one factor, the weights' sum, and the seconds it took. Tags keep P and Q apart."""
        mean, seconds = self._exact(replace(effect, v=v, tag=f"{effect.tag}/{name}", series=EVERY_BIT))
        return mean.v, mean.weight, seconds

    def _exact(self, effect: Mean) -> tuple[Averaged, float]:
        """Carries one mean as it is."""
        inner = self._begin(effect)
        averaged = inner.wait(self._timeout_s)
        return averaged, inner.seconds_communicating()
