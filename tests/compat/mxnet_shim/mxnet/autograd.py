"""`record`: operations on arrays are remembered for `backward`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def record() -> Iterator[None]:
    with torch.enable_grad():
        yield
