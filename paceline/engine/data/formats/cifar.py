"""Loads CIFAR-10 and CIFAR-100 from their binary version.

A record of CIFAR-10 is one byte of label and 3,072 of pixels, [3, 32, 32] with red first; one of CIFAR-100 has two
bytes of label, coarse and fine. (https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".) The python version is
pickled; unpickling runs what is in a file, so it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Splits
from paceline.engine.data.download import CACHE
from paceline.engine.data.formats.pictures import Pixels, normalised
from paceline.engine.data.remote import is_remote, mirrored

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
RECORDS_MAX = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Describes one of the two: its files, the bytes of its labels (the last one counts), the archive it comes in."""

    train: tuple[str, ...]
    test: str
    label_bytes: int
    classes: int
    folder: str
    python_files: tuple[str, ...]
    address: str


VERSIONS = {
    "cifar10": Version(
        train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        test="test_batch.bin",
        label_bytes=1,
        classes=10,
        folder="cifar-10-batches-bin",
        python_files=("data_batch_1", "cifar-10-batches-py"),
        address="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    ),
    "cifar100": Version(
        train=("train.bin",),
        test="test.bin",
        label_bytes=2,
        classes=100,
        folder="cifar-100-binary",
        python_files=("train", "cifar-100-python"),
        address="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    ),
}


def load(name: str, directory: str, mean: Tensor | None = None, cache: Path = CACHE) -> Splits:
    """Returns float32 [n, 3, 32, 32] from the files in `directory`, a folder or an address. Raises ConfigError."""
    version = VERSIONS[name]
    files = (*version.train, version.test)
    folder = mirrored(directory, files, cache) if is_remote(directory) else _folder(name, directory, version)
    parts = [read_records(_found(folder, file, name, version), version) for file in files]
    train = Pixels(torch.cat([part.x for part in parts[:-1]]), torch.cat([part.y for part in parts[:-1]]))
    return normalised(train, parts[-1], mean)


def read_records(path: Path, version: Version) -> Pixels:
    """Returns the pictures of one file. Raises ConfigError for anything but whole records with labels in range."""
    length, size = version.label_bytes + PIXELS, path.stat().st_size
    if size % length or not 1 <= size // length <= RECORDS_MAX:
        raise ConfigError(f"{path} has {size} bytes, not 1 to {RECORDS_MAX:,} records of {length}: get the file again")
    records = np.fromfile(path, np.uint8).reshape(-1, length)
    labels = records[:, version.label_bytes - 1].astype(np.int64)
    if labels.max() >= version.classes:
        raise ConfigError(f"{path} holds label {labels.max()}, above {version.classes - 1}: check --data-dir")
    x = torch.from_numpy(records[:, version.label_bytes :].reshape(-1, *SHAPE).copy())
    return Pixels(x, torch.from_numpy(labels))


def _folder(name: str, directory: str, version: Version) -> Path:
    if not directory:
        raise ConfigError(f"--data {name}: {_way_out(version)}")
    folder = Path(directory).expanduser()
    inner = folder / version.folder
    return inner if inner.is_dir() else folder


def _found(folder: Path, file: str, name: str, version: Version) -> Path:
    path = folder / file
    if path.is_file():
        return path
    if any((folder / python).exists() for python in version.python_files):
        raise ConfigError(
            f"{folder} holds the python version of {name}, which is pickled, and unpickling runs what is in a file: "
            f"{_way_out(version)}"
        )
    raise ConfigError(f"{folder} does not hold {file}: {_way_out(version)}")


def _way_out(version: Version) -> str:
    return f"get the binary version (curl -O {version.address}; tar xzf ...) and give --data-dir {version.folder}"
