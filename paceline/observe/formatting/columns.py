"""Makes tables of plain text, which are the same in a terminal, a log file and a mail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def short_hosts(hosts: Iterable[str]) -> dict[str, str]:
    """Returns a short name for each host: without the domain, unless two hosts would then have one name. IP addresses
    stay."""
    found = dict.fromkeys(host for host in hosts if host)
    short = {host: host if host.replace(".", "").isdigit() else host.partition(".")[0] for host in found}
    return short if len(set(short.values())) == len(found) else {host: host for host in found}


def columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, last: str = "<", words: Sequence[str] = (), gap: str = "  "
) -> str:
    """Returns a table as text: the first column to the left, the others to the right.

    last   side of the last column: "<" for words, ">" for numbers
    words  heads of further columns that hold words and so are to the left
    gap    what stands between two columns
    """
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    sides = ["<", *["<" if name in words else ">" for name in head[1:-1]], last]
    lines = (
        gap.join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)) for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
