"""Counts the lines of `sim/` that decide what live runs decide by code of their own: `python -m scripts.decided_twice`.

docs/fuzzing.md says under "Decided twice" where the live code of each rule is. Blank lines and docstrings do not count.
A function that is not there any more is an error, so that the list stays true.
"""

from __future__ import annotations

import ast
from pathlib import Path

SIM = Path(__file__).resolve().parent.parent / "paceline" / "sim"

RULES: dict[str, tuple[str, ...]] = {
    "which calls of others stay open, without hazards": ("kernel/processes.py:SimulatedProcess.admit",),
}


def lines_of(place: str) -> int:
    """Returns the lines of code of `FILE:Class.function`. Raises KeyError where it is not there."""
    file, _, name = place.partition(":")
    text = (SIM / file).read_text()
    found: ast.AST = ast.parse(text)
    for part in name.split("."):
        within = [node for node in ast.iter_child_nodes(found) if getattr(node, "name", "") == part]
        if not within:
            raise KeyError(f"{place}: there is no {part}")
        found = within[0]
    assert isinstance(found, ast.FunctionDef)
    body = found.body[1:] if ast.get_docstring(found) else found.body
    first = body[0].lineno if body else found.lineno
    code = [line for line in text.splitlines()[first - 1 : found.end_lineno] if line.strip()]
    return 1 + len(code)


def main() -> None:
    total = 0
    for rule, places in RULES.items():
        lines = sum(map(lines_of, places))
        total += lines
        print(f"{lines:>5}  {rule}")
    every = sum(len(file.read_text().splitlines()) for file in SIM.rglob("*.py"))
    print(f"{total:>5}  in all, of {every} lines of paceline/sim/")


if __name__ == "__main__":
    main()
