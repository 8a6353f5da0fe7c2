"""Seeds the random generators of workers: each draws its own numbers, for dropout for example, the same in every
run."""

from __future__ import annotations

import random

import numpy as np
import torch

from paceline.engine.torch_generator import torch_generator


def seed_generators(seed: int, rank: int, incarnation: int) -> None:
    """Seeds the generators of a worker of `paceline train`; `incarnation` counts how often it was restarted."""
    with torch_generator:
        torch.manual_seed(_drawn(seed, rank, incarnation))


def differ(seed: int, rank: int, incarnation: int, *, wanted: bool = True) -> None:
    """Seeds a script's own process differently for each rank, where the user or torch has seeded all alike.

    Worker 0 draws what it would draw alone. The others' seeds are made from the script's own and `seed`: torch's,
    and those of Python and NumPy, with which many data sets make their samples.
    """
    if wanted and (rank or incarnation):
        with torch_generator:
            torch.manual_seed(_drawn(torch.initial_seed(), seed, rank, incarnation))
        random.seed(_drawn(random.getrandbits(64), seed, rank, incarnation))
        np.random.seed(_drawn(int(np.random.randint(2**31)), seed, rank, incarnation) % 2**32)


def _drawn(*numbers: int) -> int:
    """Returns a seed of 63 bits made from `numbers`."""
    return random.Random("/".join(map(str, numbers))).getrandbits(63)
