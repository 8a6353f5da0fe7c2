"""Writes docs/decisions/README.md, the index of the decision records. `make pages` runs it.

Titles are those of the records, so the index is never edited.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "decisions"

HEAD = """\
<!-- Made by `make pages`. -->

# Decisions

A decision record has a context, a decision and its consequences, on at most one page. A record is not rewritten when a
later one replaces it; the later one says so. Records use the words of their day.

| | decision |
|---|---|
"""


def index() -> str:
    rows = []
    for path in sorted(FOLDER.glob("0*.md")):
        number, _, title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(". ")
        rows.append(f"| {number} | [{title}]({path.name}) |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(index(), encoding="utf-8")
