"""Loads MNIST and Fashion-MNIST: the IDX format, from a folder or from the public addresses.

An IDX file is two zero bytes, a type (8: unsigned byte), the number of dimensions, each dimension as a big-endian
32-bit number, then the elements. Nothing in it is believed before it is checked.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import torch

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.engine.data.dataset import Dataset, Splits
from paceline.engine.data.download import CACHE, fetch
from paceline.engine.data.remote import is_remote, mirrored

CLASSES = 10
SIDE = 28
SAMPLES_MAX = 1_000_000
_UNSIGNED_BYTE = 8
_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Describes a public data set: pixel statistics (of pixels in 0..1), addresses, and the md5 of each .gz in `_FILES`
    order.
    """

    mean: float
    std: float
    mirrors: tuple[str, ...]
    md5s: tuple[str, str, str, str]


SOURCES = {
    "mnist": Source(
        mean=0.1307,
        std=0.3081,
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        md5s=(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion-mnist": Source(
        mean=0.2860,
        std=0.3530,
        mirrors=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        md5s=(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
}


def load(name: str, directory: str = "", cache: Path = CACHE) -> Splits:
    """Returns float32 [n, 1, 28, 28] from the files in `directory`, a folder or an address; else downloaded.

    Downloads go into `cache`/`name`. Files of a directory are the user's own and are not held to the public checksums.
    Raises ConfigError.
    """
    if name not in SOURCES:
        raise ConfigError(f"unknown data set {name!r}{nearest(name, SOURCES)}")
    source = SOURCES[name]
    if is_remote(directory):
        folder = mirrored(directory, _FILES, cache)
    elif directory:
        folder = Path(directory).expanduser()
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder: give --data-dir the folder that holds the files of {name}")
    else:
        md5s = {f"{file}.gz": md5 for file, md5 in zip(_FILES, source.md5s, strict=True)}
        folder = fetch(cache / name, source.mirrors, md5s)
    train_x, train_y, test_x, test_y = (_find(folder, file) for file in _FILES)
    return Splits(train=_dataset(train_x, train_y, source), test=_dataset(test_x, test_y, source))


def read_idx(path: Path, inner: tuple[int, ...]) -> np.ndarray:
    """Returns unsigned bytes [n, *inner] of an IDX file, gzip-compressed when its name ends so.

    Raises ConfigError, in one line, for anything but a whole file of that shape with at most a million samples.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            return _read(path, file, inner)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"cannot read {path} ({error}): get the file again") from None


def _read(path: Path, file: BufferedIOBase, inner: tuple[int, ...]) -> np.ndarray:
    dimensions = 1 + len(inner)
    header = file.read(4 + 4 * dimensions)
    if len(header) < 4 + 4 * dimensions:
        raise ConfigError(f"{path} ends within its header: get the file again")
    if header[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)):
        raise ConfigError(
            f"{path} starts with {header[:4].hex()}, not 000008{dimensions:02x}: it is not an IDX file of "
            f"unsigned bytes in {dimensions} dimension{'s' * (dimensions > 1)}; check --data-dir"
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    if shape[1:] != inner or not 1 <= shape[0] <= SAMPLES_MAX:
        wanted = " x ".join(("1..1000000", *map(str, inner)))
        raise ConfigError(f"{path} announces {' x '.join(map(str, shape))} values, not {wanted}; check --data-dir")
    length = int(np.prod(shape, dtype=np.int64))
    data = file.read(length + 1)  # one more, to see that the file ends where it should
    if len(data) != length:
        found = f"only {len(data)}" if len(data) < length else "more"
        raise ConfigError(f"{path} announces {length} values and holds {found}: get the file again")
    return np.frombuffer(bytearray(data), np.uint8, length).reshape(shape)  # a bytearray, because torch must own it


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise ConfigError(f"{folder} holds neither {name} nor {name}.gz: give --data-dir the folder that does")


def _dataset(images: Path, labels: Path, source: Source) -> Dataset:
    pixels, classes = read_idx(images, (SIDE, SIDE)), read_idx(labels, ())
    if len(pixels) != len(classes):
        raise ConfigError(f"{images} holds {len(pixels)} images but {labels} {len(classes)} labels: check --data-dir")
    if classes.max() >= CLASSES:
        raise ConfigError(f"{labels} holds label {classes.max()}, above {CLASSES - 1}: check --data-dir")
    x = torch.from_numpy(pixels).float().div_(255).sub_(source.mean).div_(source.std)
    return Dataset(x.unsqueeze(1), torch.from_numpy(classes).long(), CLASSES)
