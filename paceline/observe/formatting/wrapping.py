"""Wraps help texts at the width of the terminal: paragraphs are filled, lists stay lists.

    text at the margin              a paragraph: lines that follow one another are filled together
    - text                          an item, filled with what is indented by two blanks below it
      word    what it means         an entry: what does not fit goes on below where its last column began
              more of it            belongs to the entry above
      $ a command    what it does   the same; where its last column begins too far right it has a line of its own

Docstrings of `cli/commands` and of `bench` are shown in this way, so they keep to these forms.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator

WIDTH_MAX = 110
"""Longer lines are hard to read."""
GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
"""Two blanks or more between words begin a new column."""


def columns(otherwise: int = 80) -> int:
    """Returns the columns of the terminal, whole; `otherwise` where there is none."""
    return shutil.get_terminal_size((otherwise, 24)).columns


def terminal_width() -> int:
    """Returns how long a line of help may be."""
    return max(40, min(WIDTH_MAX, columns() - 2))


def wrapped(text: str, width: int) -> str:
    """Returns `text` with lines of at most `width`, unless a single word is longer."""
    return "\n".join(line for block in _blocks(text.splitlines()) for line in _folded(block, width))


def wrapped_lines(text: str, width: int) -> str:
    """Returns `text` with each line wrapped by itself; what does not fit is indented below it."""
    return "\n".join(part for line in text.splitlines() for part in _filled(line, width, 0, 2) or [""])


def _blocks(lines: list[str]) -> Iterator[str]:
    """Yields lines that belong together as one, and an empty one between paragraphs."""
    block = ""
    for line in lines:
        if block and line and _belongs(line, block):
            block = f"{block} {line.strip()}"
            continue
        if block:
            yield block
        block = line
        if not line:
            yield ""
    if block:
        yield block


def _belongs(line: str, block: str) -> bool:
    """Returns True if `line` goes on with `block`."""
    indent = len(line) - len(line.lstrip())
    if block.startswith("- "):
        return indent == 2
    if not indent:
        return not (block[0].isspace() or line.startswith("- "))
    return block[0].isspace() and indent == _last_column(block)


def _last_column(block: str) -> int:
    """Returns where the last column of an entry begins; 0 where it has only one."""
    gaps = list(GAP.finditer(block))
    return gaps[-1].end() if gaps else 0


def _folded(block: str, width: int) -> list[str]:
    """Returns the lines of one paragraph, item or entry."""
    if len(block) <= width:
        return [block]
    margin = len(block) - len(block.lstrip())
    if not margin:
        return _filled(block, width, 0, 2 if block.startswith("- ") else 0)
    at = _last_column(block)
    if 0 < at <= width // 2:
        head, *rest = _filled("x" * at + block[at:], width, 0, at)
        return [block[:at] + head[at:], *rest]
    below = margin + 4
    lines = _filled(block[:at].strip() if at else block.strip(), width, margin, below)
    return lines + (_filled(block[at:], width, below, below) if at else [])


def _filled(text: str, width: int, first: int, rest: int) -> list[str]:
    """Fills one paragraph; `first` and `rest` are the indents of the first line and of the others."""
    indents = {"initial_indent": " " * first, "subsequent_indent": " " * rest}
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False, **indents)  # type: ignore[arg-type]
