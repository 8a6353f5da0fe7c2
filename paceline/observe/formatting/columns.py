"""This makes tables of plain text, which are the same in a terminal, a log file and a mail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def short_hosts(hosts: Iterable[str]) -> dict[str, str]:
    """By host a name that is as good among these: without the domain, where that leaves nobody's name to two."""
    found = dict.fromkeys(host for host in hosts if host)
    short = {host: host if host.replace(".", "").isdigit() else host.partition(".")[0] for host in found}
    return short if len(set(short.values())) == len(found) else {host: host for host in found}


def columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, last: str = "<", words: Sequence[str] = (), gap: str = "  "
) -> str:
    """The first column to the left, the others to the right, but for the last, which is words where `last` is `<`.

    words: heads of further columns that hold words and so are to the left.
    """
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    sides = ["<", *["<" if name in words else ">" for name in head[1:-1]], last]
    lines = (
        gap.join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)) for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
