"""Figures as people read them, and as they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.bench.report import WIDTH, duration, table, write
from paceline.bench.result import Figure
from paceline.core.errors import ConfigError

FIGURE = Figure.of("push and pull", "a pass over memory", 8_000_000, [0.004, 0.002, 0.009], [0.001], transport="tcp")


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.234, "1.23 s"), (0.0544, "54.4 ms"), (0.001, "1.0 ms"), (2.51e-5, "25.1 us")]
)
def test_a_duration_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_row_has_the_median_its_limit_how_many_times_as_long_and_the_speed() -> None:
    (head, _, row) = table([FIGURE]).splitlines()
    assert head.split()[:5] == ["what", "reached", "limit", "ratio", "GB/s"]
    assert row.split()[3:9] == ["4.0", "ms", "1.0", "ms", "4.00", "2.00"]
    assert len(row) <= WIDTH


def test_without_bytes_there_is_no_speed() -> None:
    assert "GB/s" not in table([FIGURE], speed=False)
    nothing = Figure.of("ask for nothing", "two system calls", 0, [0.002], [0.001])
    assert table([nothing]).splitlines()[-1].split()[-4:] == ["2.00", "two", "system", "calls"]


def test_what_is_kept_has_the_conditions_of_each_figure(tmp_path: Path) -> None:
    write(str(tmp_path / "figures.json"), "exchange", [FIGURE])
    kept = json.loads((tmp_path / "figures.json").read_text())
    assert kept["subject"] == "exchange"
    assert {"date", "cores", "python", "torch"} <= kept.keys()
    (row,) = kept["figures"]
    assert (row["seconds_median"], row["ratio"], row["transport"]) == (0.004, 4.0, "tcp")


def test_a_file_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--json .*: No such file or directory"):
        write(str(tmp_path / "missing" / "figures.json"), "exchange", [FIGURE])
