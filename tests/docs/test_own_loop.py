"""docs/own-loop.md: every test that it cites is where it says."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "own-loop.md").read_text()
CITED = re.compile(r"`([\w/]+\.py)`:\s+((?:`test_\w+`(?:,\s+)?)+)")


def test_every_test_that_is_cited_is_there() -> None:
    cited = [(file, test) for file, tests in CITED.findall(PAGE) for test in re.findall(r"test_\w+", tests)]
    assert len(cited) > 20
    assert len(cited) == len(re.findall(r"`test_\w+`", PAGE)), "a test without its file, or in words of another form"
    assert [c for c in cited if not re.search(rf"^def {c[1]}\(", (TESTS / c[0]).read_text(), re.M)] == []


def test_every_line_of_a_table_cites_one() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what ")]
    assert [row for row in rows if "`test_" not in row] == []
