"""Tables of plain text: the same in a terminal, a log file and a mail."""

from __future__ import annotations

from collections.abc import Sequence


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], last: str = "<") -> str:
    """The first column to the left, the others to the right, but for the last, which is words where `last` is `<`."""
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    sides = ["<", *[">"] * (len(head) - 2), last]
    lines = (
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
