"""Reads the text format of protocol buffers, in which Caffe writes its solvers and nets (`.prototxt`).

    name: "LeNet"
    layer { name: "conv1" type: "Convolution" convolution_param { num_output: 20 } }

A message becomes a dict of lists: each field, as often as it stands there, in its order. Nothing is known of the types
of fields: numbers, true and false, texts and names become int, float, bool and str.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError

Message = dict[str, list[Any]]
DEPTH_MAX = 50
BYTES_MAX = 16 * 2**20
_TOKEN = re.compile(
    r"""\s*(?:\#[^\n]*\s*)*(?:(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>[-+.\w/]+)|(?P<mark>[{}:;,<>\[\]]))"""
)
CLOSING = {"{": "}", "<": ">"}


def read_text(path: Path) -> Message:
    """Returns the message in a file. Raises ConfigError, with file and line."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise ConfigError(f"{path}: larger than {BYTES_MAX // 2**20} MiB, and no net or solver")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    return parsed(text, str(path))


def parsed(text: str, where: str = "text") -> Message:
    """Returns the message. Raises ConfigError, with the line."""
    tokens = _Tokens(text, where)
    return _message(tokens, "", 0)


class _Tokens:
    """Gives one token after the other; "" at the end."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._at = text, where, 0
        self._pending: str | None = None

    def next(self) -> str:
        token, self._pending = self._pending, None
        return self._read() if token is None else token

    def back(self, token: str) -> None:
        self._pending = token

    def error(self, what: str) -> ConfigError:
        return ConfigError(f"{self._where}, line {1 + self._text.count(chr(10), 0, self._at)}: {what}")

    def _read(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = re.sub(r"#[^\n]*", "", self._text[self._at :]).strip()
            if rest:
                raise self.error(f"{rest[:20]!r} is no text format")
            return ""
        self._at = match.end()
        return match["text"] or match["word"] or match["mark"]


def _message(tokens: _Tokens, closing: str, depth: int) -> Message:
    if depth > DEPTH_MAX:
        raise tokens.error("messages within messages, too deep")
    found: Message = {}
    while (name := tokens.next()) != closing:
        if name in (",", ";"):
            continue
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise tokens.error(f"{name or 'the end'!r} where a field or {closing or 'the end'!r} should stand")
        found.setdefault(name, []).extend(_values(tokens, depth))
    return found


def _values(tokens: _Tokens, depth: int) -> Iterator[Any]:
    """Yields what stands after a field's name: a value, several in brackets, or a message."""
    mark = tokens.next()
    if mark in CLOSING:
        yield _message(tokens, CLOSING[mark], depth + 1)
        return
    if mark != ":":
        raise tokens.error(f"{mark or 'the end'!r} where ':' or '{{' should stand")
    mark = tokens.next()
    if mark in CLOSING:
        yield _message(tokens, CLOSING[mark], depth + 1)
    elif mark == "[":
        while (token := tokens.next()) != "]":
            if token != ",":
                yield _value(tokens, token)
    else:
        yield _value(tokens, mark)


def _value(tokens: _Tokens, token: str) -> Any:
    if token[:1] in ("'", '"'):
        text = token[1:-1]
        while (token := tokens.next())[:1] in ("'", '"'):  # texts side by side are one
            text += token[1:-1]
        tokens.back(token)
        return re.sub(r"\\(.)", r"\1", text)
    if not re.fullmatch(r"[-+.\w/]+", token):
        raise tokens.error(f"{token or 'the end'!r} where a value should stand")
    if token in ("true", "false"):
        return token == "true"
    for kind in (int, float):
        try:
            return kind(token)
        except ValueError:
            continue
    return token


def one(message: Message, name: str, default: Any) -> Any:
    """Returns the last value of a field, or `default`, as protocol buffers do."""
    return message.get(name, [default])[-1]
