"""A trace read while it grows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.core.trace import Ended, Evaluated
from paceline.observe.trace.trace_file import TraceWriter, read_trace
from paceline.observe.trace.trace_tail import Follower

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


def test_a_line_that_is_nested_without_end_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(LINE + b'{"kind":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    with pytest.raises(PacelineError, match="line 2"):
        Follower(path).read()
    with pytest.raises(PacelineError, match="line 2"):
        list(read_trace(path))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_run_that_diverges_is_read_on(tmp_path: Path, loss: float) -> None:
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path) as writer:
        writer.append(Evaluated(at=1.0, accuracy=0.1, loss=loss, samples=32, seconds=0.0))
        writer.append(Ended(at=1.0, reason="steps"))
    first, last = Follower(path).read()
    assert isinstance(first, Evaluated)
    assert repr(first.loss) == repr(loss)
    assert last == Ended(at=1.0, reason="steps")
