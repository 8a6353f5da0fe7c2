"""CSV: a sheet for each kind of record, its fields as columns."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

from paceline.core.trace import Applied, MemberChange, Record
from paceline.observe.export.csv_files import write

TRACE: list[Record] = [
    Applied(at=0.5, shard=0, version=1, ranks=(0, 2), staleness=1, weight=1.0, samples=64),
    MemberChange(at=1.0, party="worker 1", event="lost", reason='reset, "at" once\nand for all'),
    Applied(at=1.5, shard=0, version=2, ranks=(1,), staleness=0, weight=0.5, samples=32),
]


def sheet(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_kinds_that_occur_have_a_sheet_with_a_row_for_each_record(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "for it"
    assert sorted(write(folder, TRACE)) == ["applied.csv", "membership.csv"]
    assert sorted(file.name for file in folder.iterdir()) == ["applied.csv", "membership.csv"]
    rows = sheet(folder / "applied.csv")
    assert list(rows[0]) == [field.name for field in dataclasses.fields(Applied)]
    assert [(row["at"], row["ranks"], row["staleness"]) for row in rows] == [("0.5", "0 2", "1"), ("1.5", "1", "0")]


def test_quotes_commas_and_lines_of_a_text_come_back(tmp_path: Path) -> None:
    write(tmp_path, TRACE)
    assert [row["reason"] for row in sheet(tmp_path / "membership.csv")] == ['reset, "at" once\nand for all']


def test_a_trace_without_records_leaves_a_folder_without_sheets(tmp_path: Path) -> None:
    assert write(tmp_path / "empty", []) == []
    assert list((tmp_path / "empty").iterdir()) == []
