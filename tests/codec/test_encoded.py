"""Encoded vectors: bytes that cannot be decoded are refused."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.codec import Encoded
from paceline.codec.encoded import WHOLE
from paceline.core.errors import ProtocolError
from paceline.sim.kernel.vectors import ArrayMemory
from tests.codec.pipeline.stages import Gradient, room, stage

MEMORY = ArrayMemory(np.zeros(1, np.float32))


N = 64


@pytest.mark.parametrize(
    "wrong",
    [
        Encoded("zip", N, bytes(16)),
        Encoded("topk", N, bytes(16)),  # a codec, but not this run's
        Encoded("2bit", N, bytes(15)),
        Encoded(WHOLE, N, bytes(4 * N - 4), 1),
        Encoded(WHOLE, N, bytes(4 * N - 3), 1),
        Encoded("2bit", N, bytes(16), 1, 1),
    ],
)
def test_bytes_that_no_codec_of_the_run_makes_are_refused(wrong: Encoded) -> None:
    with pytest.raises(ProtocolError):
        stage("2bit", of_server=True).incoming("worker", Gradient(g=wrong), room, from_server=False)


def test_bytes_are_refused_where_there_is_no_codec() -> None:
    with pytest.raises(ProtocolError):
        stage("2bit").incoming("server", Gradient(g=Encoded("2bit", N, bytes(16))), room, from_server=True)
