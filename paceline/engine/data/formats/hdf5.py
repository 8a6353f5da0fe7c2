"""Loads batches of pictures from HDF5 files: those of Theano-MPI's (hickle), and those of Caffe's HDF5 layer.

    train_hkl_b256_b_128/0000_0.hkl ...   one array a file, [3, h, w, n] (c01b) or [n, 3, h, w]
    val_hkl_b256_b_128/0000_0.hkl ...
    labels/train_labels.npy, labels/val_labels.npy      whole numbers, in the order of the files' names

Files of Caffe's have their labels in the data set `label` beside `data`, and need no .npy. A part is one file or a
folder of files, with `train`, and `val` or `test`, in its name. Nothing is unpickled: of a file numbers alone are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Splits
from paceline.engine.data.formats.pictures import Pixels, gathered, normalised
from paceline.engine.data.formats.two_parts import folder_of, two_parts

ENDINGS = (".hkl", ".h5", ".hdf5", ".hdf")
_COLOURS = (1, 3)


def load(directory: str, mean: Tensor | None = None) -> Splits:
    """Returns float32 [n, c, h, w]. Raises ConfigError."""
    train, test = two_parts(directory, "a file or folder of HDF5", lambda path: bool(_files(path)))
    folder = folder_of(directory, "HDF5 files")
    return normalised(read_part(train, folder), read_part(test, folder), mean)


def read_part(part: Path, folder: Path) -> Pixels:
    """Returns the pictures of a file, or of all files of a folder in the order of their names. Raises ConfigError."""
    files = _files(part)
    labels = _labels_beside(part, folder)
    count = sum(_shape(file)[0] for file in files)
    if labels is not None and len(labels) < count:
        raise ConfigError(f"{part} has {count} pictures, and its .npy {len(labels)} labels")
    return gathered(_read(files, labels), count, part)


def _files(part: Path) -> list[Path]:
    found = sorted(part.iterdir()) if part.is_dir() else [part]
    return [file for file in found if file.suffix.lower() in ENDINGS and file.is_file()]


def _read(files: list[Path], labels: np.ndarray | None) -> Iterator[tuple[np.ndarray, int]]:
    done = 0
    for file in files:
        with _opened(file) as opened:
            pictures = _pictures_first(_array(opened, file)[()], file)
            own = _own_labels(opened, file, len(pictures))
        if own is None and labels is None:
            raise ConfigError(f"{file}: no labels: neither a data set `label` in it, nor labels/*_labels.npy beside it")
        these = own if own is not None else labels[done : done + len(pictures)]  # type: ignore[index]
        yield from zip(pictures, map(int, these), strict=True)
        done += len(pictures)


def _opened(file: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise ConfigError("--data hdf5 needs the package h5py: pip install 'paceline[hdf5]'") from None
    try:
        return h5py.File(file, "r")
    except OSError as error:
        raise ConfigError(f"cannot read {file} as HDF5 ({' '.join(str(error).split())[:100]})") from None


def _shape(file: Path) -> tuple[int, ...]:
    """Returns [n, c, h, w] without reading the pictures."""
    with _opened(file) as opened:
        shape = tuple(_array(opened, file).shape)
    axis = batch_axis(shape, file)
    return shape[axis], *(size for at, size in enumerate(shape) if at != axis)


def _array(opened: Any, file: Path) -> Any:
    """Returns the one data set of four dimensions and numbers, in whatever group."""
    found: list[Any] = []

    def look(_: str, item: Any) -> None:
        if getattr(item, "ndim", 0) == 4 and item.dtype.kind in "uif":
            found.append(item)

    opened.visititems(look)
    if len(found) != 1:
        raise ConfigError(f"{file}: {len(found)} arrays of pictures (four dimensions of numbers), not one")
    return found[0]


def _own_labels(opened: Any, file: Path, count: int) -> np.ndarray | None:
    if "label" not in opened:
        return None
    labels: np.ndarray = np.asarray(opened["label"][()]).reshape(-1)
    if labels.dtype.kind not in "uif" or len(labels) != count or (labels != np.floor(labels)).any():
        raise ConfigError(f"{file}: `label` should be {count} whole numbers")
    whole: np.ndarray = labels.astype(np.int64)
    return whole


def batch_axis(shape: tuple[int, ...], file: Path) -> int:
    """Returns 3 for [c, h, w, n] and 0 for [n, c, h, w]; the first wins if both may be meant."""
    if shape[0] in _COLOURS and not (shape[1] in _COLOURS and shape[3] not in _COLOURS and shape[1] != shape[2]):
        return 3
    if shape[1] in _COLOURS:
        return 0
    raise ConfigError(f"{file}: an array {list(shape)} is neither [c, h, w, n] nor [n, c, h, w] with 1 or 3 colours")


def _pictures_first(array: np.ndarray, file: Path) -> np.ndarray:
    """Returns [n, c, h, w] in uint8 or float32."""
    moved = np.moveaxis(array, batch_axis(array.shape, file), 0)
    return np.ascontiguousarray(moved, np.uint8 if array.dtype == np.uint8 else np.float32)


def _labels_beside(part: Path, folder: Path) -> np.ndarray | None:
    """Returns the labels of an .npy with `train`, or `val` or `test`, in its name; None if there is none."""
    words = ("train",) if "train" in part.name.lower() else ("test", "val")
    beside = sorted({*folder.glob("*.npy"), *folder.glob("labels/*.npy")})
    found = [file for file in beside if "label" in file.name.lower() and any(w in file.name.lower() for w in words)]
    if not found:
        return None
    try:
        labels: np.ndarray = np.load(found[0], allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {found[0]} ({error})") from None
    if labels.ndim != 1 or labels.dtype.kind not in "ui":
        raise ConfigError(f"{found[0]}: labels should be whole numbers in one dimension")
    return labels
