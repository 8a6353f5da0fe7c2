"""Workers that average among themselves, over a hub."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination.party import worker
from paceline.core.effects import Mean
from paceline.core.errors import PacelineError
from paceline.core.paramserver.peer_check import OwnResults
from paceline.live.collectives.peer_backend import PeerCarrier
from paceline.live.net.inprocess_transport import Hub, HubTransport
from paceline.live.node.node import Node
from paceline.live.protocol.pending_reply import PendingReply
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory
from tests.live.node_fixture import Behind

STRIP_BYTES = 64


TWO_HOSTS = ((0, 2), (1,))


class NumpyAdder:
    """Vectors of float64 arrive strip by strip, when the test takes an action from `late`."""

    def __init__(self) -> None:
        self.late: list[Callable[[], None]] = []

    def blend(self, mine: Any, theirs: Any, share: float, into: Any) -> None:
        into[:] = mine + np.float32(share) * (theirs - mine)

    def copy(self, v: Any, into: Any) -> None:
        into[:] = v

    def dense(self, v: Any) -> Any:
        return v

    readable = dense

    def when(self, v: Any, action: Callable[[], None]) -> None:
        action() if v.dtype == np.float32 else self.late.append(action)


class Workers:
    """So many workers on a hub that know how to carry means, and nothing else.

    told: what they say of their own parts, if they check them: rank, number, whether it is finite, whether of a mean.
    refused: by rank, whose claims it found false.
    """

    def __init__(self, count: int, *, checked: bool = False, most_weight: float = math.inf) -> None:
        self.told: list[tuple[int, int, bool, bool]] = []
        self.refused: list[list[int]] = [[] for _ in range(count)]
        self.hub = Hub()
        self.transports: list[HubTransport] = []
        self.nodes: list[Node] = []
        self.carriers: list[PeerCarrier] = []
        self.adders: list[NumpyAdder] = []
        for rank in range(count):
            transport = self.hub.transport(worker(rank))
            node = Node(transport, NumpyMemory(), timeout_s=PATIENCE_SECONDS)
            self.adders.append(NumpyAdder())
            check = OwnResults(partial(self._tell, rank)) if checked else None
            node.peers = PeerCarrier(
                transport,
                NumpyMemory(),
                self.adders[-1],
                strip_bytes=STRIP_BYTES,
                check=check,
                refuse=lambda src, why, refused=self.refused[rank]: refused.append(src),  # type: ignore[misc]
                most_weight=lambda: most_weight,
            )
            transport.open(Behind(node))
            self.transports.append(transport)
            self.nodes.append(node)
            self.carriers.append(node.peers)

    def _tell(self, rank: int, number: int, finite: bool, mean: bool) -> None:
        self.told.append((rank, number, finite, mean))

    def begin(
        self, rank: int, v: Any, among: tuple[int, ...], tag: str, weight: float = 1.0, by: str = "ring"
    ) -> PendingReply:
        hosts = TWO_HOSTS if by == "hierarchical" else ()
        return self.carriers[rank].begin(Mean(np.array(v, np.float32), among, tag, weight), by, hosts)

    def close(self) -> None:
        for carrier, transport in zip(self.carriers, self.transports, strict=True):
            carrier.close()
            transport.close()


def numbers(pending: PendingReply) -> list[float]:
    return list(map(float, pending.wait(PATIENCE_SECONDS).v))


def failure(pending: PendingReply) -> PacelineError:
    with pytest.raises(PacelineError) as error:
        pending.wait(PATIENCE_SECONDS)
    return error.value
