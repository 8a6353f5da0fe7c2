"""Folders of pictures: classes by name, sizes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.data.formats import image_folder
from paceline.engine.specs import DataRecipe
from tests.engine.data.formats.pictures_on_disk import BLUE, GREEN, RED, png


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in ("train", "val"):
        for name, colour in (("cat", GREEN), ("ant", RED)):
            (tmp_path / part / name).mkdir(parents=True)
            (tmp_path / part / name / "1.png").write_bytes(png(colour))
    (tmp_path / "train" / "cat" / "deeper").mkdir()
    (tmp_path / "train" / "cat" / "deeper" / "2.PNG").write_bytes(png(BLUE))
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no picture")
    return tmp_path


def test_classes_are_numbered_by_name_and_other_files_are_left_out(folder: Path) -> None:
    splits = load(DataRecipe(name="imagefolder", directory=str(folder)))
    assert splits.train.y.tolist() == [0, 1, 1]
    assert splits.train.x.shape == (3, 3, 6, 6)
    assert splits.train.x[0].mean((1, 2)).argmax() == 0  # ant is red
    assert splits.train.classes == 2


def test_pictures_of_several_sizes_need_one(folder: Path) -> None:
    (folder / "train" / "ant" / "large.png").write_bytes(png(RED, 12, 8))
    with pytest.raises(ConfigError, match=r"3 x 6 x 6 and of 3 x 8 x 12: .* --resize N"):
        image_folder.load(str(folder))
    assert image_folder.load(str(folder), resize=5).train.x.shape == (4, 3, 5, 5)


def test_a_class_that_is_not_trained_on_is_refused(folder: Path) -> None:
    (folder / "val" / "bee").mkdir()
    with pytest.raises(ConfigError, match="has a class 'bee', which"):
        image_folder.load(str(folder))


def test_a_file_that_is_no_picture_is_named(folder: Path) -> None:
    (folder / "train" / "ant" / "0.jpg").write_bytes(b"not a picture")
    with pytest.raises(ConfigError, match=r"ant/0.jpg: no picture that can be read"):
        image_folder.load(str(folder))


def test_a_folder_without_classes_or_pictures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    with pytest.raises(ConfigError, match="has no folders: there should be one for each class"):
        image_folder.load(str(tmp_path))
    (tmp_path / "train" / "ant").mkdir()
    (tmp_path / "test" / "ant").mkdir()
    with pytest.raises(ConfigError, match="holds no pictures"):
        image_folder.load(str(tmp_path))
