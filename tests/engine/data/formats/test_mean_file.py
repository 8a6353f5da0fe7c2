"""Mean files: Caffe's blobs in both forms, arrays of NumPy, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.engine.data.formats.mean_file import read_mean
from tests.engine.data.formats.caffe_messages import message

NUMBERS = [float(number) for number in range(12)]


@pytest.mark.parametrize(
    "sizes", [{"num": 1, "channels": 3, "height": 2, "width": 2}, {"shape": [1, 3, 2, 2]}, {"shape": [3, 2, 2]}]
)
def test_a_blob_may_have_four_sizes_or_a_shape(tmp_path: Path, sizes: dict[str, object]) -> None:
    file = tmp_path / "mean.binaryproto"
    file.write_bytes(message("BlobProto", data=NUMBERS, **sizes))
    assert read_mean(str(file)).flatten().tolist() == NUMBERS
    assert read_mean(str(file)).shape == (3, 2, 2)


def test_an_array_may_have_pictures_or_one_value_a_channel(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 4, 5)))
    np.save(tmp_path / "b.npy", np.array([1, 2, 3]))
    assert read_mean(str(tmp_path / "a.npy")).shape == (3, 4, 5)
    assert read_mean(str(tmp_path / "b.npy")).shape == (3, 1, 1)


def test_a_pickled_array_and_other_shapes_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ConfigError, match="allow_pickle=False"):
        read_mean(str(tmp_path / "pickled.npy"))
    np.save(tmp_path / "flat.npy", np.ones((3, 4)))
    with pytest.raises(ConfigError, match=r"float64 \[3, 4\]; give a .binaryproto"):
        read_mean(str(tmp_path / "flat.npy"))
    np.save(tmp_path / "nan.npy", np.array([1.0, np.nan, 0.0]))
    with pytest.raises(ConfigError, match="not finite"):
        read_mean(str(tmp_path / "nan.npy"))


def test_a_blob_whose_sizes_are_not_its_numbers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mean.binaryproto"
    file.write_bytes(message("BlobProto", num=1, channels=3, height=2, width=3, data=NUMBERS))
    with pytest.raises(ConfigError, match="a blob of 3 x 2 x 3 with 48 bytes"):
        read_mean(str(file))
