"""Decodes pictures (JPEG, PNG and what else Pillow knows) to pixels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from paceline.core.errors import ConfigError


def decoded(source: Path | bytes, resize: int, where: str) -> np.ndarray:
    """Returns uint8 [3, h, w], red first.

    resize: the shorter side is brought to so many pixels, and the middle is kept; 0: as it is. Raises ConfigError,
    which names `where`, for what is no picture.
    """
    try:
        with Image.open(source if isinstance(source, Path) else io.BytesIO(source)) as image:
            pixels = image.convert("RGB")
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
