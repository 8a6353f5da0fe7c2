"""RecordIO files, written here as dmlc/recordio.h and image_recordio.h say."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.data.formats import recordio
from paceline.engine.data.formats.recordio import MAGIC, record, unpacked
from paceline.engine.specs import DataRecipe
from tests.engine.data.formats.pictures_on_disk import BLUE, GREEN, RED, png

WORD = struct.pack("<I", MAGIC)


def written(data: bytes) -> bytes:
    """One record: cut where a word of the data is the magic number, as RecordIOWriter::WriteRecord cuts."""
    cuts = [at for at in range(0, len(data) - len(data) % 4, 4) if data[at : at + 4] == WORD]
    starts, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(data)]
    kinds = [0] if not cuts else [1, *[2] * (len(cuts) - 1), 3]
    parts = []
    for kind, start, end in zip(kinds, starts, ends, strict=True):
        length = end - start
        parts.append(WORD + struct.pack("<I", kind << 29 | length) + data[start:end] + bytes(-length % 4))
    return b"".join(parts)


def picture(label: float, colour: tuple[int, int, int], flag: int = 0, labels: bytes = b"") -> bytes:
    return struct.pack("<IfQQ", flag, label, 1, 0) + labels + png(colour)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toy_train.rec").write_bytes(
        b"".join(written(picture(label, colour)) for label, colour in ((2, RED), (0, GREEN), (1, BLUE)))
    )
    (tmp_path / "toy_val.rec").write_bytes(written(picture(1, BLUE)))
    return tmp_path


def test_pictures_come_in_the_order_of_the_file_with_red_first(folder: Path) -> None:
    splits = load(DataRecipe(name="recordio", directory=str(folder)))
    assert (splits.train.y.tolist(), splits.test.y.tolist(), splits.train.classes) == ([2, 0, 1], [1], 3)
    assert splits.train.x.shape == (3, 3, 6, 6)
    assert splits.train.x[:, :, 0, 0].argmax(1).tolist() == [0, 1, 2]


def test_an_index_says_which_records_there_are(folder: Path) -> None:
    second = len(written(picture(2, RED)))
    (folder / "toy_train.idx").write_text(f"7\t{second}\n3\t0\n")
    assert recordio.load(str(folder)).train.y.tolist() == [0, 2]


@pytest.mark.parametrize("data", [WORD, b"abcd" + WORD + b"ef", WORD + WORD + b"x", b"a" + WORD + b"bcd"])
def test_data_that_hold_the_magic_number_come_back_whole(data: bytes) -> None:
    assert record(io.BytesIO(written(data)), "here") == data


def test_a_label_may_stand_behind_the_header() -> None:
    label, data = unpacked(picture(0, RED, flag=1, labels=struct.pack("<f", 4)), "here")
    assert label == 4
    assert data == png(RED)


def test_several_labels_and_half_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 labels, the first of them 4: --data takes one whole number"):
        unpacked(picture(0, RED, flag=2, labels=struct.pack("<ff", 4, 5)), "here")
    with pytest.raises(ConfigError, match=r"1 labels, the first of them 0.5"):
        unpacked(picture(0.5, RED), "here")


def test_damaged_files_and_foreign_indices_are_refused(folder: Path) -> None:
    file = folder / "toy_train.rec"
    (folder / "toy_train.idx").write_text("0\t4\n")
    with pytest.raises(ConfigError, match=r"at 4: no record of RecordIO begins there"):
        recordio.load(str(folder))
    (folder / "toy_train.idx").write_text("0\t999999\n")
    with pytest.raises(ConfigError, match=r"toy_train.idx has positions beyond the end of toy_train.rec"):
        recordio.load(str(folder))
    (folder / "toy_train.idx").unlink()
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="ends within a record"):
        recordio.load(str(folder))
