"""A trace read while it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.core.trace import Ended
from paceline.observe.watch.follow import Follower

LINE = b'{"kind":"ended","at":1.0,"reason":"steps"}\n'


def test_only_whole_lines_are_read_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    follower = Follower(path)
    assert follower.read() == []
    path.write_bytes(LINE + LINE[:20])
    assert follower.read() == [Ended(at=1.0, reason="steps")]
    assert follower.read() == []
    with path.open("ab") as file:
        file.write(LINE[20:] + LINE)
    assert len(follower.read()) == 2
    assert follower.fraction == 1.0


def test_a_file_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(LINE * 3)
    follower = Follower(path)
    assert len(follower.read()) == 3
    path.rename(tmp_path / "trace.1.jsonl")
    path.write_bytes(LINE)
    assert len(follower.read()) == 1
    assert follower.begun_anew
    follower.read()
    assert not follower.begun_anew


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(LINE + b'{"kind":"rumour"}\n')
    with pytest.raises(PacelineError, match="line 2"):
        Follower(path).read()
