"""Loads pictures from folders, one folder a class: DIR/train/CLASS/x.jpg and DIR/val/CLASS/y.jpg, or DIR/test.

The classes are numbered in the order of their names, as torchvision's ImageFolder numbers them. Pictures of several
sizes need `--resize N`: the shorter side is brought to N pixels, and the middle is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Splits
from paceline.engine.data.formats.decoding import decoded
from paceline.engine.data.formats.pictures import gathered, normalised
from paceline.engine.data.formats.two_parts import two_parts

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def load(directory: str, resize: int = 0, mean: Tensor | None = None) -> Splits:
    """Returns float32 [n, 3, h, w]. Raises ConfigError where the folders, their classes or pictures will not do."""
    train, test = two_parts(directory, "a folder of classes", Path.is_dir)
    classes = _classes(train)
    if strange := [name for name in _classes(test) if name not in classes]:
        raise ConfigError(f"{test} has a class {strange[0]!r}, which {train} has not")
    parts = []
    for folder in (train, test):
        files = [(path, number) for number, name in enumerate(classes) for path in _pictures(folder / name)]
        parts.append(gathered(_read(files, resize), len(files), folder))
    return normalised(parts[0], parts[1], mean)


def _classes(folder: Path) -> list[str]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise ConfigError(f"{folder} has no folders: there should be one for each class, with its pictures")
    return names


def _pictures(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())


def _read(files: list[tuple[Path, int]], resize: int) -> Iterator[tuple[np.ndarray, int]]:
    for path, number in files:
        yield decoded(path, resize, str(path)), number
