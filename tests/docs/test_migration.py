"""docs/migration.md: every row cites a test that is there, or says why the feature is not rebuilt."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "migration.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| there ")]
CITED = re.compile(r"`([\w/]+\.py)`: `(test_\w+)`")
SYSTEMS = ("MXNet: KVStore", "MXNet: ps-lite", "MXNet: image", "MXNet-G", "ESync", "SpeeDO", "Theano-MPI")
TESTED_PARTS_MIN = 90 / 95
"""The part of all rows that a test has to hold."""


def test_every_test_that_is_cited_is_there() -> None:
    cited = CITED.findall(PAGE)
    assert len(cited) == len(re.findall(r"`test_\w+`", PAGE)), "a test without its file, or in words of another form"
    assert [c for c in cited if not re.search(rf"^def {c[1]}\(", (TESTS / c[0]).read_text(), re.MULTILINE)] == []


def test_a_row_without_a_test_says_what_is_not_rebuilt() -> None:
    assert [row for row in ROWS if ("`test_" in row) == row.endswith("| no test |")] == []
    assert [row for row in ROWS if row.endswith("| no test |") and "not rebuilt" not in row] == []


def test_nearly_all_rows_are_held_by_a_test_and_the_page_counts_them() -> None:
    tested = sum("`test_" in row for row in ROWS)
    assert len(ROWS) >= 95
    assert tested >= TESTED_PARTS_MIN * len(ROWS)
    assert f"{tested} of {len(ROWS)} rows have a test" in " ".join(PAGE.split())


def test_each_system_has_a_part() -> None:
    parts = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert [system for system in SYSTEMS if not any(part.startswith(system) for part in parts)] == []
