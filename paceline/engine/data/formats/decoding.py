"""Decodes pictures (JPEG, PNG and other common formats) to pixels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from paceline.core.errors import ConfigError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""What data sets are made of. Pillow knows some dozens more, whose decoders few people look at."""
PIXELS_MAX = 32 * 1024 * 1024
"""Pixels of a picture, which take three bytes each in every worker, and twice that while it is decoded."""


def decoded(source: Path | bytes, resize: int, where: str) -> np.ndarray:
    """Returns uint8 [3, h, w], red first.

    resize: the shorter side is brought to so many pixels, and the middle is kept; 0: as it is. Raises ConfigError,
    which names `where`, for what is no picture.
    """
    try:
        with Image.open(source if isinstance(source, Path) else io.BytesIO(source), formats=FORMATS) as image:
            w, h = image.size
            if w * h > PIXELS_MAX:
                raise ConfigError(f"{where}: {w} x {h} pixels, and {PIXELS_MAX:,} are the most: make it smaller first")
            pixels = image.convert("RGB")
    except ConfigError:  # it is a ValueError, too, and names what is wrong
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ConfigError(f"{where}: no picture that can be read ({' '.join(str(error).split())[:100]})") from None
    if resize:
        pixels = _square(pixels, resize)
    return np.ascontiguousarray(np.asarray(pixels, np.uint8).transpose(2, 0, 1))


def _square(image: Image.Image, side: int) -> Image.Image:
    w, h = image.size
    scale = side / min(w, h)
    w, h = max(side, round(w * scale)), max(side, round(h * scale))
    left, top = (w - side) // 2, (h - side) // 2
    return image.resize((w, h), Image.Resampling.BILINEAR).crop((left, top, left + side, top + side))
