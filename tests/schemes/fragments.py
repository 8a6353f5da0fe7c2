"""Fragments of DiLoCo, by hand."""

from typing import Any

import numpy as np

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import make
from paceline.schemes.asyncdiloco import LocalDelta
from tests.role_driver import ByHand


def server(workers: int = 2, **parameters: Any) -> ByHand:
    scheme = make("asyncdiloco", parameters)
    return ByHand(scheme.Server, scheme, workers)


def delta(value: float, clock: int, speed: float = 1.0) -> LocalDelta:
    return LocalDelta(delta=np.array([value]), clock=clock, samples=1, speed=speed)
