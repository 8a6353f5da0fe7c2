"""docs/choose.md knows every scheme, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.cli.support import scheme_catalogue
from paceline.core.scheme import names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "choose.md"
ROWS = [line.strip("|\n ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| [")]


def test_every_scheme_of_the_registry_has_one_row_in_order() -> None:
    assert [row[0] for row in ROWS] == [f"[{name}](schemes/{name}.md)" for name in names()]


def test_every_row_says_when_when_not_what_it_needs_and_what_it_costs() -> None:
    assert [row for row in ROWS if len(row) != 6 or not all(cell.strip() for cell in row)] == []


def test_what_a_row_says_of_needs_is_what_the_scheme_declares() -> None:
    for (link, _, _, needs, *_), name in zip(ROWS, names(), strict=True):
        declared = scheme_catalogue.needs(name)["runs on"]
        if name == "hybrid":
            continue  # its phases decide
        assert ("connections between workers" in needs) == declared.startswith("workers that reach"), link
        assert ("collectives" in needs) or "collectives" not in declared, link
        assert ("servers" in needs) or not declared.startswith("servers"), link


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).is_file(), target
