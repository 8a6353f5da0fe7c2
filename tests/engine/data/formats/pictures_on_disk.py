"""Small pictures that tests write into files."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

RED, GREEN, BLUE = (250, 10, 20), (15, 240, 25), (30, 35, 230)


def png(colour: tuple[int, int, int], w: int = 6, h: int = 6) -> bytes:
    """A picture of one colour: red, green, blue."""
    buffer = io.BytesIO()
    Image.new("RGB", (w, h), colour).save(buffer, "PNG")
    return buffer.getvalue()


def random_pixels(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randint(0, 256, (n, *shape), dtype=np.uint8)
