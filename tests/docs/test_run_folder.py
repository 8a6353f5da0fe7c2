"""docs/run-folder.md names every key of summary.json, and no other."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from paceline.observe.runs.summary import Summary, WorkerSummary

PAGE = Path(__file__).parents[2] / "docs" / "run-folder.md"


def keys_under(heading: str) -> set[str]:
    """Returns the names in the first column of the table below a heading."""
    section = PAGE.read_text().split(f"\n{heading}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}


@pytest.mark.parametrize(("heading", "record"), [("## summary.json", Summary), ("### Workers", WorkerSummary)])
def test_the_page_names_every_key_of_the_summary(heading: str, record: type) -> None:
    fields = {field.name for field in dataclasses.fields(record)}
    assert keys_under(heading) == fields
