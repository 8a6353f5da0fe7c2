"""A stage of tests, and messages that pass through it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from paceline.codec import read
from paceline.codec.pipeline.stage import Stage
from paceline.core.message import INCREMENT, Nature, message, nature_of
from paceline.core.vector import Vector
from paceline.live.protocol.pending_reply import rooms_for
from paceline.sim.kernel.vectors import ArrayMemory

MEMORY = ArrayMemory(np.zeros(1, np.float32))


N = 64


@message("test_stage.Gradient")
class Gradient:
    carries: ClassVar[Nature] = INCREMENT
    g: Vector
    clock: int = 1


def stage(
    codec: str, *, down: str = "none", of_server: bool = False, exact_below: int = 0, memory: Any = MEMORY
) -> Stage:
    return Stage(memory, nature_of, up=read(codec), down=read(down), of_server=of_server, exact_below=exact_below)


def numbers(seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).integers(-64, 65, N) / 8).astype(np.float32)


MEMORY = ArrayMemory(np.zeros(1, np.float32))


def room(lengths: Any, there: Any) -> list[Any]:
    return rooms_for(lengths, there, MEMORY)
