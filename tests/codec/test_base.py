"""Codecs as text."""

from __future__ import annotations

import pytest

from paceline.codec import read
from paceline.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topkk", "unknown codec 'topkk'; did you mean 'topk'?"),
        ("topk(rate=1)", "codec topk has no parameter 'rate'; did you mean 'ratio'?"),
        ("topk(ratio=x)", "ratio = x: must be float"),
        ("topk(ratio=2)", "codec topk: ratio = 2.0: must lie between 1e-06 and 0.5"),
        ("topk(ratio", "cannot read 'topk(ratio'; write a codec as 'topk' or 'topk(ratio=0.01)'"),
        ("topk(0.5)", "cannot read '0.5'; write parameters as 'topk(key=value, key=value)'"),
        ("sign(block=12)", "codec sign: block = 12: must be a multiple of 8"),
        ("none(x=1)", "none has no parameters"),
        ("", "cannot read ''; write a codec as 'topk' or 'topk(ratio=0.01)'"),
    ],
)
def test_a_codec_that_cannot_be_read_is_refused_with_the_way_out(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["2bit", "topk(ratio=0.05)", "dgc(ratio=0.01, momentum=0.5, warmup=7)", "int8"])
def test_a_codec_is_written_as_it_is_read(text: str) -> None:
    assert str(read(text)) == text


def test_none_is_no_codec() -> None:
    assert read("none") is None
