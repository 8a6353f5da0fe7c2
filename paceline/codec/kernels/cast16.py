"""fp16 and bf16 share these conversions by torch, which runs at the speed of memory: a loop of our
own is not needed.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, whole


class Rounded(Codec):
    """Sends every number in the 16-bit floating-point type that torch calls `adds_up`; what rounding
    takes away is lost.
    """

    weights = "as they are"

    @property
    def feedback(self) -> bool:
        return False

    def size(self, length: int, nth: int = 0) -> int:
        return 2 * length

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes:
        return narrowed(g, self.adds_up)

    def decode(self, data: Bytes, out: Floats) -> None:
        widened(data, self.adds_up, out)


def narrowed(g: Floats, type: str) -> Bytes:
    """Returns `g` in the 16-bit floating-point type of that name, rounded to the nearest, ties to even."""
    import torch  # here, as whoever only asks for names has no use for it

    out = np.empty(2 * len(g), np.uint8)
    torch.from_numpy(out).view(getattr(torch, type)).copy_(_tensor(g))
    return out


def widened(data: Bytes, type: str, out: Floats) -> None:
    """Writes the numbers over `out`. Raises ValueError when `data` is not as long as `out` takes."""
    import torch

    whole(data, 2 * len(out))
    torch.from_numpy(out).copy_(_tensor(data).view(getattr(torch, type)))


def _tensor(array: Floats | Bytes) -> Any:
    """Returns a tensor over an array that may be read-only; it is only read, so torch's warning does not apply."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
