"""torch has one random number generator for all threads of a process, and the workers of a run may be threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

torch_generator = threading.Lock()
"""A thread holds this lock while it seeds the generator, or uses it and restores its state.

If two threads did so at once, each would restore a state that the other draws from: a model that is built meanwhile
would get other weights.
"""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws come from `seed`, and tensors are made on the CPU; afterwards the global generator is as it was."""
    # torch.manual_seed would also reseed every GPU, and forking their states would start CUDA for nothing.
    with torch_generator, torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield
