"""torch has one random number generator for all threads of a process, and the workers of a run may be threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

torch_generator = threading.Lock()
"""Held by whoever seeds the generator, or borrows it and puts it back as it was.

Of two borrowers at once each would put back what the other draws from: a model that is built meanwhile would have
other weights.
"""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws come from `seed`, and tensors are made on the CPU; afterwards the global generator is as it was."""
    # torch.manual_seed would also reseed every GPU, and forking their states would start CUDA for nothing.
    with torch_generator, torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield
