"""Batches of Theano-MPI and files of Caffe's HDF5 layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.data.formats import hdf5
from paceline.engine.specs import DataRecipe
from tests.engine.data.formats.pictures_on_disk import random_pixels

h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'paceline[hdf5]'")
PIXELS = random_pixels(8, 3, 5, 5)


def write(file: Path, **arrays: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(file, "w") as opened:
        for name, array in arrays.items():
            opened.create_dataset(name, data=array)


@pytest.fixture
def theano_mpi(tmp_path: Path) -> Path:
    """As its preparation leaves it: c01b batches by hickle, labels beside them."""
    for number in range(2):
        batch = np.moveaxis(PIXELS[3 * number : 3 * number + 3], 0, 3)
        write(tmp_path / "train_hkl_b3" / f"{number:04}_0.hkl", data_0=batch)
    write(tmp_path / "val_hkl_b3" / "0000_0.hkl", data_0=np.moveaxis(PIXELS[6:], 0, 3))
    (tmp_path / "labels").mkdir()
    np.save(tmp_path / "labels" / "train_labels.npy", np.array([5, 4, 3, 2, 1, 0, 9]))  # more than batches: cut off
    np.save(tmp_path / "labels" / "val_labels.npy", np.array([1, 2]))
    return tmp_path


def test_batches_follow_one_another_and_the_last_axis_is_the_picture(theano_mpi: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "img_mean.npy", np.zeros((3, 5, 5)))
    recipe = DataRecipe(name="hdf5", directory=str(theano_mpi), mean_file=str(tmp_path / "img_mean.npy"))
    splits = load(recipe)
    assert (splits.train.y.tolist(), splits.test.y.tolist()) == ([5, 4, 3, 2, 1, 0], [1, 2])
    assert torch.equal(splits.train.x, torch.from_numpy(PIXELS[:6]).float())
    assert torch.equal(splits.test.x, torch.from_numpy(PIXELS[6:]).float())


def test_a_file_of_caffe_s_has_its_labels_with_it(tmp_path: Path) -> None:
    data = PIXELS[:, :1].astype(np.float32) / 255
    write(tmp_path / "train.h5", data=data[:6], label=np.arange(6, dtype=np.float32))
    write(tmp_path / "test.h5", data=data[6:], label=np.array([[3], [4]]))
    splits = hdf5.load(str(tmp_path))
    assert (splits.train.y.tolist(), splits.test.y.tolist()) == ([0, 1, 2, 3, 4, 5], [3, 4])
    assert splits.train.x.shape == (6, 1, 5, 5)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 9, 9, 128), 3), ((128, 3, 9, 9), 0), ((3, 3, 9, 9), 0), ((1, 9, 9, 1), 3), ((3, 3, 3, 3), 3)],
)
def test_which_axis_counts_the_pictures(shape: tuple[int, ...], axis: int) -> None:
    assert hdf5.batch_axis(shape, Path("x.hkl")) == axis


def test_files_that_will_not_do_are_refused(theano_mpi: Path) -> None:
    np.save(theano_mpi / "labels" / "val_labels.npy", np.array([1]))
    with pytest.raises(ConfigError, match="has 2 pictures, and its .npy 1 labels"):
        hdf5.load(str(theano_mpi))
    np.save(theano_mpi / "labels" / "val_labels.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ConfigError, match="val_labels.npy"):
        hdf5.load(str(theano_mpi))
    (theano_mpi / "labels" / "val_labels.npy").unlink()
    with pytest.raises(ConfigError, match="no labels: neither"):
        hdf5.load(str(theano_mpi))
    write(theano_mpi / "val_hkl_b3" / "0000_0.hkl", data_0=np.zeros((4, 5, 6, 7)))
    with pytest.raises(ConfigError, match=r"\[4, 5, 6, 7\] is neither \[c, h, w, n\] nor"):
        hdf5.load(str(theano_mpi))
    (theano_mpi / "val_hkl_b3" / "0000_0.hkl").write_bytes(b"no HDF5")
    with pytest.raises(ConfigError, match="cannot read .* as HDF5"):
        hdf5.load(str(theano_mpi))


def test_without_the_package_the_error_has_the_command(theano_mpi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"pip install 'paceline\[hdf5\]'"):
        hdf5.load(str(theano_mpi))
