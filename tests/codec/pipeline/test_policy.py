"""What is encoded, and what is left as it is."""

from __future__ import annotations

import numpy as np

from paceline.core.collective.mean_server import Part
from paceline.core.effects import EVERY_BIT, Mean
from paceline.core.message import message
from paceline.core.vector import Vector
from paceline.sim.kernel.vectors import ArrayMemory
from tests.codec.pipeline.stages import Gradient, numbers, stage

MEMORY = ArrayMemory(np.zeros(1, np.float32))


N = 64


@message("test_stage.Snapshot")
class Snapshot:
    v: Vector


def test_messages_that_nobody_declared_and_means_of_which_every_bit_counts_are_left_alone() -> None:
    worker, v = stage("topk"), numbers(1)
    for sent in (Snapshot(v=v), Part.of(Mean(v, (0, 1), "first", series=EVERY_BIT))):
        assert worker.outgoing("server", 0, sent) is sent


def test_a_short_vector_stays_exact() -> None:
    worker = stage("topk", exact_below=N + 1)
    sent = numbers(1)
    assert worker.outgoing("server", 0, Gradient(g=sent)).g is sent
