"""Tables of plain text: the same in a terminal, a log file and a mail."""

from __future__ import annotations

from collections.abc import Sequence


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], *, last: str = "<", words: Sequence[str] = ()) -> str:
    """The first column to the left, the others to the right, but for the last, which is words where `last` is `<`.

    words: heads of further columns that hold words and so are to the left.
    """
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    sides = ["<", *["<" if name in words else ">" for name in head[1:-1]], last]
    lines = (
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
