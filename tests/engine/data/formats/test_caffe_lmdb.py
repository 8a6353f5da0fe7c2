"""Caffe's LMDBs: pictures as convert_imageset writes them, raw and encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.data.formats import caffe_lmdb
from paceline.engine.data.formats.caffe_lmdb import Datum, parsed, pixels_of
from paceline.engine.specs import DataRecipe
from tests.engine.data.formats.caffe_messages import message
from tests.engine.data.formats.pictures_on_disk import RED, png, random_pixels

lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed: pip install 'paceline[lmdb]'")


def write(folder: Path, data: list[bytes]) -> None:
    """With the keys of convert_imageset: eight digits and the file's name."""
    with lmdb.open(str(folder), map_size=1 << 20) as database, database.begin(write=True) as writer:
        for number, one in enumerate(data):
            writer.put(f"{number:08}_some/picture.jpg".encode(), one)


def raw(pixels: np.ndarray, label: int) -> bytes:
    c, h, w = pixels.shape
    return message("Datum", channels=c, height=h, width=w, data=pixels.tobytes(), label=label)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pixels = random_pixels(5, 3, 4, 6)
    write(tmp_path / "toy_train_lmdb", [raw(one, label) for one, label in zip(pixels[:3], (2, 0, 1), strict=True)])
    write(tmp_path / "toy_test_lmdb", [raw(one, 3) for one in pixels[3:]])
    return tmp_path


def test_raw_pictures_come_in_the_order_of_their_keys(folder: Path) -> None:
    splits = load(DataRecipe(name="lmdb", directory=str(folder)))
    assert (splits.train.y.tolist(), splits.test.y.tolist(), splits.train.classes) == ([2, 0, 1], [3, 3], 4)
    assert splits.train.x.shape == (3, 3, 4, 6)


def test_a_binaryproto_mean_is_subtracted(folder: Path, tmp_path: Path) -> None:
    mean = np.arange(3 * 6 * 8, dtype=np.float32).reshape(3, 6, 8)  # larger than the pictures: its middle counts
    file = tmp_path / "mean.binaryproto"
    file.write_bytes(message("BlobProto", num=1, channels=3, height=6, width=8, data=mean.ravel().tolist()))
    x = load(DataRecipe(name="lmdb", directory=str(folder), mean_file=str(file))).train.x
    assert torch.equal(x[0], torch.from_numpy(random_pixels(5, 3, 4, 6)[0] - mean[:, 1:5, 1:7]))


def test_encoded_pictures_have_blue_first_as_caffe_decodes_them() -> None:
    datum = parsed(message("Datum", data=png(RED), label=1, encoded=True), "here")
    assert pixels_of(datum, 0, "here")[:, 0, 0].tolist() == list(RED)[::-1]


def test_floats_are_read_as_well() -> None:
    datum = parsed(message("Datum", channels=1, height=1, width=2, float_data=[0.5, -3.0]), "here")
    assert pixels_of(datum, 0, "here").tolist() == [[[0.5, -3.0]]]


@pytest.mark.parametrize(
    ("datum", "says"),
    [
        (Datum(channels=3, height=2, width=2, data=b"abc"), "3 x 2 x 2 with 3 values"),
        (Datum(channels=0, height=2, width=2, data=b"abc"), "a Datum of 0 x 2 x 2"),
        (Datum(data=b"abc", encoded=True), "no picture that can be read"),
    ],
)
def test_what_is_no_picture_is_refused(datum: Datum, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        pixels_of(datum, 0, "here")


def test_what_is_no_datum_is_named_by_its_key(tmp_path: Path) -> None:
    write(tmp_path / "train", [b"\x08"])
    write(tmp_path / "test", [b"\x08"])
    with pytest.raises(ConfigError, match=r"train, key b'00000000_some.*: no Datum of Caffe's"):
        caffe_lmdb.load(str(tmp_path))


def test_a_broken_database_is_one_line(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.mdb").write_bytes(b"nothing" * 2000)
    with pytest.raises(ConfigError, match="cannot read the LMDB"):
        caffe_lmdb.load(str(tmp_path))


def test_without_the_package_the_error_has_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lmdb", None)
    with pytest.raises(ConfigError, match=r"pip install 'paceline\[lmdb\]'"):
        caffe_lmdb.load(str(folder))
