"""Downloads from mirrors into a cache, checked by their checksums."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.engine.data import download, mnist

TRAIN, TEST = 20, 5


IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = mnist._FILES


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
