"""CIFAR in its binary version; what is not that is refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.data.formats import cifar
from paceline.engine.specs import DataRecipe
from tests.engine.data.formats.pictures_on_disk import random_pixels


def write(path: Path, labels: list[list[int]], pixels: np.ndarray) -> None:
    records = [bytes(label) + picture.tobytes() for label, picture in zip(labels, pixels, strict=True)]
    path.write_bytes(b"".join(records))


@pytest.fixture
def cifar10(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number in range(5):
        write(folder / f"data_batch_{number + 1}.bin", [[number], [9]], random_pixels(2, 3, 32, 32, seed=number))
    write(folder / "test_batch.bin", [[7], [8], [0]], random_pixels(3, 3, 32, 32, seed=9))
    return folder


def test_cifar10_is_five_files_in_their_order_and_one_to_test(cifar10: Path) -> None:
    splits = load(DataRecipe(name="cifar10", directory=str(cifar10)))
    assert splits.train.y.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    assert splits.test.y.tolist() == [7, 8, 0]
    assert splits.train.x.shape == (10, 3, 32, 32)
    assert splits.train.classes == 10


def test_each_channel_is_normalised_as_the_training_set_says(cifar10: Path) -> None:
    x = load(DataRecipe(name="cifar10", directory=str(cifar10))).train.x
    assert torch.allclose(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)
    assert torch.allclose(x.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-4)


def test_with_a_mean_file_pixels_stay_pixels(cifar10: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "mean.npy", np.array([100.0, 110.0, 120.0]))
    recipe = DataRecipe(name="cifar10", directory=str(cifar10), mean_file=str(tmp_path / "mean.npy"))
    first = random_pixels(2, 3, 32, 32, seed=0)[0]
    expected = torch.from_numpy(first).float() - torch.tensor([100.0, 110.0, 120.0]).view(3, 1, 1)
    assert torch.equal(load(recipe).train.x[0], expected)


def test_the_folder_that_holds_the_archive_s_folder_will_do(cifar10: Path) -> None:
    assert len(cifar.load("cifar10", str(cifar10.parent)).train) == 10


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    write(tmp_path / "train.bin", [[3, 99], [4, 7]], random_pixels(2, 3, 32, 32))
    write(tmp_path / "test.bin", [[0, 1]], random_pixels(1, 3, 32, 32))
    splits = cifar.load("cifar100", str(tmp_path))
    assert (splits.train.y.tolist(), splits.test.y.tolist()) == ([99, 7], [1])


def test_the_python_version_is_refused_with_the_way_to_the_binary_one(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02}q\x01")
    with pytest.raises(ConfigError, match=r"python version .* pickled.*binary version .*cifar-10-binary.tar.gz"):
        cifar.load("cifar10", str(tmp_path))


def test_no_folder_no_file_half_a_record_and_a_wrong_label_are_refused(tmp_path: Path, cifar10: Path) -> None:
    with pytest.raises(ConfigError, match="--data cifar10: get the binary version"):
        cifar.load("cifar10", "")
    with pytest.raises(ConfigError, match="does not hold data_batch_1.bin"):
        cifar.load("cifar10", str(tmp_path / "nowhere"))
    (cifar10 / "data_batch_3.bin").write_bytes(bytes(3000))
    with pytest.raises(ConfigError, match="3000 bytes, not 1 to 60,000 records of 3073"):
        cifar.load("cifar10", str(cifar10))
    (cifar10 / "data_batch_3.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ConfigError, match="label 10, above 9"):
        cifar.load("cifar10", str(cifar10))
