"""docs/reliability.md: every test that it cites is where it says, and its first lines count its rows."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text()
CASES = [cells for line in PAGE.splitlines() if len(cells := re.split(r"(?<!\\)\|", line)[1:-1]) == 4]
ROWS = [cells for cells in CASES if re.match(r" \d", cells[0])]
CITED = re.compile(r"`([\w/]+\.py)`: ((?:`test_\w+`(?:, | and )?)+)")
STATES = [row[-1].strip() for row in ROWS]


def test_every_test_that_is_cited_is_there() -> None:
    cited = [(file, test) for file, tests in CITED.findall(PAGE) for test in re.findall(r"test_\w+", tests)]
    assert len(cited) > 57
    assert len(cited) == len(re.findall(r"`test_\w+`", PAGE)), "a test without its file, or in words of another form"
    assert [c for c in cited if not re.search(rf"^(async )?def {c[1]}\(", (TESTS / c[0]).read_text(), re.M)] == []


def test_every_case_has_a_row_and_one_that_is_tested_cites_a_test() -> None:
    assert [int(row[0].split()[0]) for row in ROWS] == list(range(1, 58))
    assert set(STATES) <= {"tested", "in part", "not covered", "does not apply"}
    covered = [row for row, state in zip(ROWS, STATES, strict=True) if state in ("tested", "in part")]
    assert [row[0] for row in covered if "`test_" not in "|".join(row)] == []


def test_the_first_lines_count_the_rows() -> None:
    told = re.search(
        r"Of the (\d+) cases below (\d+) are covered by a test \((\d+) of them in part\), (\d+) are\s+not covered, "
        r"and (\d+) do not apply",
        PAGE,
    )
    assert told is not None
    in_part, tested = STATES.count("in part"), STATES.count("tested")
    counts = (57, tested + in_part, in_part, STATES.count("not covered"), STATES.count("does not apply"))
    assert tuple(map(int, told.groups())) == counts
