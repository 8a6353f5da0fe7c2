"""The wire format, against Google's own library, and what is no message."""

from __future__ import annotations

import pytest

from paceline.engine.data.formats.protobuf import fields
from tests.engine.data.formats.caffe_messages import message


def test_fields_have_the_values_that_were_written() -> None:
    written = message("Datum", channels=3, height=300, data=b"abc", label=70_000, float_data=[1.0], encoded=True)
    assert list(fields(written)) == [(1, 3), (2, 300), (4, b"abc"), (5, 70_000), (6, b"\0\0\x80\x3f"), (7, 1)]


@pytest.mark.parametrize(
    ("bytes_", "says"),
    [
        (b"\x08", "within a number"),
        (b"\x22\x05ab", "within a field"),
        (b"\x0b", "unknown type 3"),
        (b"\x08" + b"\xff" * 11, "more than ten bytes"),
    ],
)
def test_what_is_no_message_is_refused(bytes_: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        list(fields(bytes_))
