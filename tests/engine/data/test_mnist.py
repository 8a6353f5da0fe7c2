"""The files of MNIST and Fashion-MNIST: read, normalised, or refused by name."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.data import mnist
from tests.engine.data.files import assert_usable, idx_bytes

TRAIN, TEST = 20, 5


IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = mnist._FILES


def refusal(directory: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        mnist.load("mnist", str(directory))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_files_are_read_and_normalised(name: str, real_data: Callable[[str], Path]) -> None:
    splits = mnist.load(name, str(real_data(name)))
    assert_usable(splits, (1, 28, 28))
    assert (len(splits.train), len(splits.test)) == (60_000, 10_000)
    # All of them: MNIST's order alternates between two sources of writers, so every other picture is a biased sample.
    assert abs(float(splits.train.x.mean())) < 0.002
    assert abs(float(splits.train.x.std()) - 1) < 0.002


def test_compressed_and_plain_files_are_read_alike(folder: Path) -> None:
    first = mnist.load("mnist", str(folder))
    (folder / IMAGES).write_bytes(gzip.decompress((folder / f"{IMAGES}.gz").read_bytes()))
    second = mnist.load("mnist", str(folder))
    assert_usable(first, (1, 28, 28))
    assert (len(first.train), len(first.test)) == (TRAIN, TEST)
    assert torch.equal(first.train.x, second.train.x)
    assert first.train.y.tolist() == [i % 10 for i in range(TRAIN)]


def test_pixels_are_scaled_by_the_usual_mean_and_deviation(folder: Path) -> None:
    pixels = np.zeros((TRAIN, 28, 28), np.uint8)
    pixels[0, 0, 0] = 255
    (folder / IMAGES).write_bytes(idx_bytes(pixels))
    x = mnist.load("mnist", str(folder)).train.x
    assert float(x[0, 0, 0, 0]) == pytest.approx((1 - 0.1307) / 0.3081, rel=1e-5)
    assert float(x[0, 0, 0, 1]) == pytest.approx(-0.1307 / 0.3081, rel=1e-5)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "ends within its header"),
        (b"\x00\x00\x08", "ends within its header"),
        (b"PNG!" * 8, "not an IDX file"),
        (bytes((0, 0, 13, 3)) + bytes(12), "not an IDX file"),
        (bytes((0, 0, 8, 1)) + bytes(12), "000008"),
        (bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1), "announces 4294967295 x"),
        (bytes((0, 0, 8, 3)) + struct.pack(">3I", 10**6 + 1, 28, 28), "1..1000000 x 28 x 28"),
        (bytes((0, 0, 8, 3)) + struct.pack(">3I", 0, 28, 28), "announces 0 x 28 x 28"),
        (idx_bytes(np.zeros((TRAIN, 8, 8), np.uint8)), "1..1000000 x 28 x 28"),
        (idx_bytes(np.zeros((TRAIN, 28, 28), np.uint8))[:-1], "holds only 15679"),
        (idx_bytes(np.zeros((TRAIN, 28, 28), np.uint8)) + b"!", "holds more"),
        (idx_bytes(np.zeros((TRAIN + 1, 28, 28), np.uint8)), "21 images but"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named_and_refused(folder: Path, content: bytes, words: str) -> None:
    (folder / IMAGES).write_bytes(content)
    message = refusal(folder)
    assert words in message
    assert str(folder / IMAGES) in message


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"no gzip" + b, lambda b: b[:100] + b"x" * 99]
)
def test_a_damaged_compressed_file_is_named_and_refused(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folder / f"{IMAGES}.gz"
    path.write_bytes(damage(path.read_bytes()))
    assert str(path) in refusal(folder)


def test_a_label_above_nine_is_refused(folder: Path) -> None:
    (folder / LABELS).write_bytes(idx_bytes(np.full(TRAIN, 10, np.uint8)))
    assert "label 10" in refusal(folder)


def test_a_missing_file_and_a_missing_folder_are_told_apart(folder: Path) -> None:
    (folder / LABELS).unlink()
    assert f"neither {LABELS} nor" in refusal(folder)
    assert "is not a folder" in refusal(folder / "nowhere")
