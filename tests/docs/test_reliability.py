"""docs/reliability.md: every row names a test that is where it says, and the first lines count the cases."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text()
CASES = 57
TABLES = re.findall(r"^\| case \| what happens \| test \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.M)
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for table in TABLES for line in table.splitlines()]
CITED = re.compile(r"`([\w/]+\.py)`: ((?:`test_\w+`(?:, | and )?)+)")
NUMBERED = [int(row[0].split()[0]) for row in ROWS if row[0]]
IN_PART = [int(number) for number in re.findall(r"^- (\d+): ", PAGE, re.M)]


def test_every_test_that_is_cited_is_there() -> None:
    cited = [(file, test) for file, tests in CITED.findall(PAGE) for test in re.findall(r"test_\w+", tests)]
    assert len(cited) > 200
    assert len(cited) == len(re.findall(r"`test_\w+`", PAGE)), "a test without its file, or in words of another form"
    assert [c for c in cited if not re.search(rf"^(async )?def {c[1]}\(", (TESTS / c[0]).read_text(), re.M)] == []


def test_every_case_is_there_once_and_every_row_says_what_happens_and_names_its_test() -> None:
    assert list(range(1, CASES + 1)) == NUMBERED
    assert [row for row in ROWS if len(row) != 3 or not row[1] or not CITED.search(row[2])] == []


def test_what_is_not_covered_is_said_in_the_order_of_the_cases() -> None:
    assert sorted(set(IN_PART)) == IN_PART
    assert set(IN_PART) <= set(NUMBERED)


def test_the_first_lines_count_the_cases() -> None:
    told = re.search(
        r"This page lists (\d+) failures\..*Of the (\d+) cases (\d+) are covered by\s+tests in full, and (\d+) in part",
        PAGE,
        re.S,
    )
    assert told is not None
    assert tuple(map(int, told.groups())) == (CASES, CASES, CASES - len(IN_PART), len(IN_PART))
