"""A recording is readable whatever became of the process that wrote it, and has a size that it keeps to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.live.recording.recording_file import RecordingWriter, read_recording


def writer(path: Path, bytes_max: int = 1 << 20, **options: object) -> RecordingWriter:
    return RecordingWriter(path, bytes_max, {"party": "x"}, **options)  # type: ignore[arg-type]


def test_what_was_appended_is_read_back_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.jsonl.gz"
    file = writer(path)
    lines = [["in", 0.5, "ä\ud800", None], {"nan": float("inf")}, "a\nb"]
    for line in lines:
        file.append(line)
    file.close()
    file.append("after the end")
    assert list(read_recording(path)) == [{"format": 1, "party": "x"}, *lines]
    assert path.stat().st_mode & 0o077 == 0


def test_kill_9_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    if (pid := os.fork()) == 0:
        file = writer(path)
        for n in range(100):
            file.append(["in", n])
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert list(read_recording(path))[1:] == [["in", n] for n in range(100)]


def test_after_any_cut_all_whole_lines_before_it_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    file, sizes = writer(path), []
    for n in range(8):
        file.append(["in", n])
        sizes.append(path.stat().st_size)
    file.close()
    data = path.read_bytes()
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        whole = sum(size <= cut for size in sizes)
        read = list(read_recording(path))[1:]
        assert read == [["in", n] for n in range(len(read))]
        assert len(read) >= whole


def test_a_full_recording_keeps_its_beginning_and_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    path = tmp_path / "x.jsonl.gz"
    file = writer(path, 2000, lost=told.append)
    for n in range(1000):
        file.append(["in", n])
    assert file.ended
    lines = list(read_recording(path))
    assert lines[1:-1] == [["in", n] for n in range(len(lines) - 2)]
    assert lines[-1] == ["full"]
    assert path.stat().st_size < 2200
    assert [line.endswith("later inputs are not recorded") for line in told] == [True]


def test_one_that_keeps_the_last_has_at_least_half_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    file = writer(path, 4000, keeps="last")
    for n in range(1000):
        file.append(["in", n])
    file.close()
    old, new = list(read_recording(tmp_path / "x.old.jsonl.gz")), list(read_recording(path))
    assert old[0] == new[0] == {"format": 1, "party": "x"}
    kept = [n for _, n in old[1:] + new[1:]]
    assert kept == list(range(kept[0], 1000))
    assert kept[0] > 0
    assert 2000 <= sum(file.stat().st_size for file in tmp_path.iterdir()) <= 4200


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_recording_and_not_the_run() -> None:
    told: list[str] = []
    file = writer(Path("/dev/full"), lost=told.append)
    file.append(["in", 1])
    file.close()
    assert told == ["/dev/full: No space left on device; the run goes on, and is not recorded any more"]


def test_what_is_no_json_ends_the_recording_and_not_the_run(tmp_path: Path) -> None:
    told: list[str] = []
    file = writer(tmp_path / "x.jsonl.gz", lost=told.append)
    file.append(["in", object()])
    file.append(["in", 1])
    assert [line.endswith("not recorded any more") for line in told] == [True]
    assert list(read_recording(tmp_path / "x.jsonl.gz")) == [{"format": 1, "party": "x"}]


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        list(read_recording(tmp_path / "none"))
    (tmp_path / "x.jsonl.gz").write_bytes(b"no gzip at all")
    with pytest.raises(ConfigError, match="damaged after line 0"):
        list(read_recording(tmp_path / "x.jsonl.gz"))
    (tmp_path / "x.jsonl").write_text('{"format": 1}\nnonsense\n')
    with pytest.raises(ConfigError, match="damaged after line 2"):
        list(read_recording(tmp_path / "x.jsonl"))
