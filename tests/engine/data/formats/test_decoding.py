"""Decoding pictures: colours, sizes, and files that lie about theirs."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from paceline.core.errors import ConfigError
from paceline.engine.data.formats.decoding import decoded
from tests.engine.data.formats.pictures_on_disk import GREEN, png


def test_a_picture_is_channels_first_with_red_first() -> None:
    pixels = decoded(png(GREEN, w=3, h=2), 0, "here")
    assert pixels.shape == (3, 2, 3)
    assert pixels[:, 0, 0].tolist() == list(GREEN)


def test_the_shorter_side_is_brought_to_the_size_and_the_middle_is_kept() -> None:
    assert decoded(png(GREEN, w=40, h=10), 5, "here").shape == (3, 5, 5)
    assert decoded(png(GREEN, w=3, h=7), 9, "here").shape == (3, 9, 9)


def test_what_is_cut_short_is_named() -> None:
    with pytest.raises(ConfigError, match="here: no picture that can be read"):
        decoded(png(GREEN)[:40], 0, "here")


def test_a_picture_of_many_pixels_and_a_rare_format_are_refused_before_they_are_decoded() -> None:
    """A file of some kilobytes may be a picture that takes a gigabyte."""
    drawn = io.BytesIO()
    Image.new("1", (7_000, 7_000)).save(drawn, "PNG")
    with pytest.raises(
        ConfigError, match=r"^here: 7000 x 7000 pixels, and [\d,]+ are the most: make it smaller first$"
    ):
        decoded(drawn.getvalue(), 32, "here")
    rare = io.BytesIO()
    Image.new("RGB", (8, 8)).save(rare, "SGI")
    with pytest.raises(ConfigError, match="^here: no picture that can be read"):
        decoded(rare.getvalue(), 0, "here")
