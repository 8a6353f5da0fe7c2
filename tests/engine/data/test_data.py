"""Data sets: what the files must be, what comes out, and what the user hears when they will not do."""

from __future__ import annotations

import gzip
import hashlib
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import paceline
from paceline.core.errors import ConfigError
from paceline.engine.data import download, load, mnist
from paceline.engine.data.dataset import Dataset, Splits
from paceline.engine.specs import DATASETS, DataRecipe

TRAIN, TEST = 20, 5
IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = mnist._FILES


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny data set in the shape of MNIST, half of it compressed."""
    random = np.random.default_rng(0)
    for images, labels, n in ((IMAGES, LABELS, TRAIN), (TEST_IMAGES, TEST_LABELS, TEST)):
        pixels = random.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        (tmp_path / f"{images}.gz").write_bytes(gzip.compress(idx_bytes(pixels)))
        (tmp_path / labels).write_bytes(idx_bytes(np.arange(n, dtype=np.uint8) % 10))
    return tmp_path


def refusal(directory: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        mnist.load("mnist", str(directory))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_usable(splits: Splits, shape: tuple[int, int, int]) -> None:
    for part in (splits.train, splits.test):
        assert part.shape == shape
        assert len(part) == len(part.x) == len(part.y)
        assert int(part.y.min()) >= 0
        assert int(part.y.max()) < part.classes == 10


# ---- the data sets -------------------------------------------------------------------------------------------


def test_digits_are_split_normalised_and_complete() -> None:
    splits = load(DataRecipe(name="digits"))
    assert_usable(splits, (1, 8, 8))
    assert (len(splits.train), len(splits.test)) == (1437, 360)
    assert abs(float(splits.train.x.mean())) < 0.02
    assert abs(float(splits.train.x.std()) - 1) < 0.02
    assert len(torch.bincount(splits.test.y)) == 10


def test_no_test_digit_is_also_a_training_digit() -> None:
    splits = load(DataRecipe(name="digits"))
    train = {row.numpy().tobytes() for row in splits.train.x}
    assert not train & {row.numpy().tobytes() for row in splits.test.x}


def test_digits_are_those_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    images, ours = paceline.load_digits()
    assert np.array_equal(images.flatten(1).numpy() * 16, pixels)
    assert np.array_equal(ours.numpy(), labels)


def test_a_run_under_sgd_starts_without_scikit_learn_and_torchs_compiler_which_take_seconds() -> None:
    starts = (
        "import sys; from paceline.engine import data, specs; from paceline.engine.optim import optimizers; "
        "data.load(specs.DataRecipe()); "
        "optimizers.make_rule(specs.OptimizerRecipe()); print({'sklearn', 'scipy', 'torch._dynamo'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", starts], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_recipe_is_loaded_once() -> None:
    assert load(DataRecipe(name="synthetic", samples=50)) is load(DataRecipe(name="synthetic", samples=50))


def test_synthetic_data_has_the_asked_size_and_can_be_learned() -> None:
    splits = load(DataRecipe(name="synthetic", samples=4000))
    assert_usable(splits, (1, 28, 28))
    assert (len(splits.train), len(splits.test)) == (4000, 1000)
    x, y = splits.train.x.flatten(1), splits.train.y
    means = torch.stack([x[y == label].mean(0) for label in range(10)])
    guess = torch.cdist(splits.test.x.flatten(1), means).argmin(1)
    assert float((guess == splits.test.y).float().mean()) > 0.9


@pytest.mark.parametrize("samples", [0, -1, 10**9])
def test_an_impossible_amount_of_synthetic_data_is_refused(samples: int) -> None:
    with pytest.raises(ConfigError, match="samples"):
        load(DataRecipe(name="synthetic", samples=samples))


def test_an_unknown_data_set_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mnist'"):
        load(DataRecipe(name="mnits"))


def test_every_named_data_set_is_known() -> None:
    assert set(mnist.SOURCES) < set(DATASETS)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_files_are_read_and_normalised(name: str, real_data: Callable[[str], Path]) -> None:
    splits = mnist.load(name, str(real_data(name)))
    assert_usable(splits, (1, 28, 28))
    assert (len(splits.train), len(splits.test)) == (60_000, 10_000)
    # All of them: MNIST's order alternates between two sources of writers, so every other picture is a biased sample.
    assert abs(float(splits.train.x.mean())) < 0.002
    assert abs(float(splits.train.x.std()) - 1) < 0.002


def test_choosing_shares_does_not_import_torch() -> None:
    check = "import sys, paceline.engine.data.partition_plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_dataset_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x must be \[n, \.\.\.\]"):
        Dataset(torch.zeros(()), torch.zeros(3, dtype=torch.int64), 10)
    with pytest.raises(ValueError, match="float32 or integers, not torch.float64"):
        Dataset(torch.zeros(3, 1, 2, 2).double(), torch.zeros(3, dtype=torch.int64), 10)
    with pytest.raises(ValueError, match=r"int64 \[3\]"):
        Dataset(torch.zeros(3, 1, 2, 2), torch.zeros(2, dtype=torch.int64), 10)


def test_a_dataset_that_is_there_already_is_not_copied() -> None:
    data = load(DataRecipe(name="digits")).train
    assert data.to("cpu") is data


# ---- IDX files -----------------------------------------------------------------------------------------------


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


# ---- downloads -----------------------------------------------------------------------------------------------


@pytest.fixture
def mirror(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A public address that is a folder, which holds MNIST in its four compressed files."""
    shop = folder / "mirror"
    shop.mkdir()
    for name in mnist._FILES:
        plain = folder / name
        packed = gzip.compress(plain.read_bytes()) if plain.exists() else (folder / f"{name}.gz").read_bytes()
        (shop / f"{name}.gz").write_bytes(packed)
    md5s = [hashlib.md5((shop / f"{name}.gz").read_bytes()).hexdigest() for name in mnist._FILES]
    mirrors = (f"{(folder / 'closed').as_uri()}/", f"{shop.as_uri()}/")
    source = mnist.Source(mean=0.5, std=0.5, mirrors=mirrors, md5s=(md5s[0], md5s[1], md5s[2], md5s[3]))
    monkeypatch.setitem(mnist.SOURCES, "mnist", source)
    return shop


def test_without_a_directory_the_first_mirror_that_answers_fills_the_cache(mirror: Path, tmp_path: Path) -> None:
    splits = mnist.load("mnist", cache=tmp_path / "cache")
    assert len(splits.train) == TRAIN
    assert sorted(p.name for p in (tmp_path / "cache" / "mnist").iterdir()) == sorted(f"{f}.gz" for f in mnist._FILES)


def test_what_is_cached_and_right_is_not_fetched_again(mirror: Path, tmp_path: Path) -> None:
    mnist.load("mnist", cache=tmp_path / "cache")
    for path in mirror.iterdir():
        path.unlink()
    assert len(mnist.load("mnist", cache=tmp_path / "cache").test) == TEST


def test_what_is_cached_and_damaged_is_fetched_again(mirror: Path, tmp_path: Path) -> None:
    mnist.load("mnist", cache=tmp_path / "cache")
    (tmp_path / "cache" / "mnist" / f"{LABELS}.gz").write_bytes(b"half a file")
    assert len(mnist.load("mnist", cache=tmp_path / "cache").train) == TRAIN


def test_a_file_with_another_checksum_never_reaches_the_cache(mirror: Path, tmp_path: Path) -> None:
    (mirror / f"{IMAGES}.gz").write_bytes(b"not what was published")
    with pytest.raises(ConfigError, match=r"md5 .* instead of .*give --data-dir"):
        mnist.load("mnist", cache=tmp_path / "cache")
    assert not list((tmp_path / "cache" / "mnist").iterdir())


def test_offline_the_user_is_told_to_give_a_directory(mirror: Path, tmp_path: Path) -> None:
    for path in mirror.iterdir():
        path.unlink()
    with pytest.raises(ConfigError, match=r"cannot download .*give --data-dir") as caught:
        mnist.load("mnist", cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_an_endless_download_is_cut_off(mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "BYTES_MAX", 100)
    with pytest.raises(ConfigError, match="longer than 100 bytes"):
        mnist.load("mnist", cache=tmp_path / "cache")


def test_a_cache_that_cannot_be_made_is_a_plain_error(mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match="cannot write to"):
        mnist.load("mnist", cache=tmp_path / "cache")
