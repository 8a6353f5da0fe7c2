"""The trace file: what is appended is read back, whatever happened to the process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.core.trace import Applied, Decided, Ended, Evaluated, MemberChange, Record, Span
from paceline.observe.trace.trace_file import TraceWriter, read_trace

ONE_OF_EACH: list[Record] = [
    Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=32),
    Applied(at=0.2, shard=0, ranks=(0, 1), version=1, staleness=2, weight=0.5, samples=64),
    Decided(at=0.3, party="server 0", rank=1, verdict="wait", reason="waits for worker 0"),
    Evaluated(at=0.4, accuracy=0.5, loss=0.7, samples=64, seconds=0.01),
    MemberChange(at=0.5, party="worker 1", event="lost", reason="größer als die Frist"),
    Ended(at=0.6, reason="target reached"),
]


def write(path: Path, records: list[Record]) -> None:
    with TraceWriter(path) as writer:
        for record in records:
            writer.append(record)


def test_every_kind_of_record_comes_back_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "new" / "trace.jsonl", ONE_OF_EACH)
    assert list(read_trace(tmp_path / "new" / "trace.jsonl")) == ONE_OF_EACH


def test_one_record_is_one_line_of_json_with_its_kind(tmp_path: Path) -> None:
    write(tmp_path / "t", ONE_OF_EACH)
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "t").read_text().splitlines()]
    assert kinds == ["span", "applied", "decision", "evaluated", "membership", "ended"]


def test_many_threads_may_write_and_each_keeps_its_order(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t") as writer:

        def work(rank: int) -> None:
            for i in range(2000):
                writer.append(Span(at=float(i), rank=rank, activity="computing", seconds=0.1))

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    spans = [record for record in read_trace(tmp_path / "t") if isinstance(record, Span)]
    for rank in range(8):
        assert [span.at for span in spans if span.rank == rank] == [float(i) for i in range(2000)]


def test_a_record_is_in_the_file_soon_without_closing(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t") as writer:
        writer.append(ONE_OF_EACH[0])
        deadline = time.monotonic() + 10
        while not list(read_trace(tmp_path / "t")):
            assert time.monotonic() < deadline, "one second was promised"
            time.sleep(0.05)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "t", ONE_OF_EACH)
    whole = (tmp_path / "t").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "t").write_bytes(whole[:length])
        left = list(read_trace(tmp_path / "t"))
        assert left == ONE_OF_EACH[: len(left)]
        assert len(left) >= whole[:length].count(b"\n")


def test_a_damaged_line_before_the_last_is_an_error_that_names_file_and_line(tmp_path: Path) -> None:
    write(tmp_path / "t", ONE_OF_EACH)
    lines = (tmp_path / "t").read_text().splitlines(keepends=True)
    for damaged in ("{\n", "7\n", '{"kind": "nonsense"}\n', '{"kind": "ended", "at": 1}\n', "{}\n"):
        (tmp_path / "t").write_text("".join([lines[0], damaged, *lines[2:]]))
        with pytest.raises(PacelineError, match=r"t, line 2: not a trace record \(.+\)$") as caught:
            list(read_trace(tmp_path / "t"))
        assert "\n" not in str(caught.value)


def test_a_second_run_continues_after_the_torn_line_of_the_first(tmp_path: Path) -> None:
    write(tmp_path / "t", ONE_OF_EACH[:2])
    (tmp_path / "t").write_bytes((tmp_path / "t").read_bytes()[:-5])
    write(tmp_path / "t", ONE_OF_EACH[2:])
    assert list(read_trace(tmp_path / "t")) == [ONE_OF_EACH[0], *ONE_OF_EACH[2:]]


def test_what_comes_after_close_is_dropped_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t")
    writer.append(ONE_OF_EACH[0])
    writer.close()
    writer.append(ONE_OF_EACH[1])
    writer.close()
    assert list(read_trace(tmp_path / "t")) == ONE_OF_EACH[:1]


def test_a_missing_trace_and_a_place_that_cannot_be_written_are_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="cannot be read"):
        list(read_trace(tmp_path / "none"))
    (tmp_path / "file").write_text("")
    with pytest.raises(PacelineError, match="cannot be written"):
        TraceWriter(tmp_path / "file" / "trace.jsonl")


def test_a_record_that_cannot_be_written_is_an_error_at_close(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t")
    writer.append(Ended(at=0.0, reason=object()))  # type: ignore[arg-type]
    with pytest.raises(PacelineError, match="cannot be written"):
        writer.close()


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    write(tmp_path / "t", [Evaluated(at=np.float32(0.5), accuracy=np.float64(0.25), loss=1.0, samples=3, seconds=0.0)])
    assert list(read_trace(tmp_path / "t")) == [Evaluated(at=0.5, accuracy=0.25, loss=1.0, samples=3, seconds=0.0)]


def test_importing_the_package_brings_in_none_of_the_heavy_libraries() -> None:
    modules = ["trace.trace_file", "runs.summary", "plots.run_figures", "plots.style"]
    modules += [f"terminal.{name}" for name in ("progress", "worker_table", "race")]
    modules.append("formatting.number_format")
    code = f"import sys; {'; '.join(f'import paceline.observe.{module}' for module in modules)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"matplotlib", "rich", "numpy", "torch"}.intersection(loaded)
