"""Text as samples of a language model."""

from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.engine import data
from paceline.engine.data.formats import text
from paceline.engine.model.loss import next_tokens
from paceline.engine.specs import DataRecipe


def test_a_sample_is_followed_by_its_label(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(100)))
    splits = text.load(str(tmp_path / "a.txt"), 8)
    assert len(splits.train) + len(splits.test) == 12
    assert splits.train.x[1].tolist() == list(range(8, 16))
    assert next_tokens(splits.train.x, splits.train.y)[1].tolist() == list(range(9, 17))
    assert splits.test.x[-1].tolist() == list(range(88, 96))


def test_without_a_file_it_is_the_standard_library_and_always_the_same() -> None:
    one, other = text.load("", 64), data.load(DataRecipe(name="text"))
    assert len(one.train) > 10_000
    assert one.train.x.equal(other.train.x)
    assert bytes(one.train.x[:4].flatten().tolist()).decode().isascii()


@pytest.mark.parametrize(("content", "reason"), [(b"short", "fewer than two samples of 8"), (None, "No such file")])
def test_a_file_that_will_not_do_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "a.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        text.load(str(file), 8)


def test_the_label_is_no_class_of_which_one_is_most_common() -> None:
    assert text.load("", 64).test.chance == 0
