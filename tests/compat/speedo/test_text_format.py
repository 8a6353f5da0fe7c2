"""The text format of protocol buffers, as Caffe's files have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.compat.speedo.text_format import one, parsed, read_text
from paceline.core.errors import ConfigError


def test_fields_messages_lists_and_comments_are_read() -> None:
    found = parsed(
        """# a net
        name: "Le" 'Net'  # texts side by side are one
        layer { top: "a" top: "b" param: { lr_mult: 1e-2 } }
        layer < bias_term: false pool: MAX; n: -3, >
        stepvalue: [10, 20]
        path: "a\\"b"
        """
    )
    assert found["name"] == ["LeNet"]
    first, second = found["layer"]
    assert first == {"top": ["a", "b"], "param": [{"lr_mult": [0.01]}]}
    assert second == {"bias_term": [False], "pool": ["MAX"], "n": [-3]}
    assert found["stepvalue"] == [10, 20]
    assert found["path"] == ['a"b']
    assert (one(first, "top", ""), one(first, "none", 7)) == ("b", 7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb 2", "line 2: '2' where ':' or '{' should stand"),
        ("layer { a: 1", "'the end' where a field or '}' should stand"),
        ("a: 1 }", "'}' where a field"),
        ("a: {" * 60, "too deep"),
        ("a: ?", "is no text format"),
        ("a:", "'the end' where a value should stand"),
        ("a: [1", "'the end' where a value should stand"),
    ],
)
def test_what_is_no_such_text_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("[", r"\[").replace("{", r"\{").replace("}", r"\}")):
        parsed(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"net\.prototxt: cannot be read"):
        read_text(tmp_path / "net.prototxt")
