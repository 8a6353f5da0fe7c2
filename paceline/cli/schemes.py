"""`paceline schemes`: the catalogue."""

from __future__ import annotations

import dataclasses
import sys

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.cli.options import Parser
from paceline.core.scheme import limits_of, lookup, names

EPILOG = (
    """`paceline schemes NAME` shows one scheme in full: its algorithm, its parameters, when to use it and when not."""
)


def main(arguments: list[str]) -> int:
    parser = Parser(prog="paceline schemes", usage="paceline schemes [NAME]", description=__doc__, epilog=EPILOG)
    parser.add_argument("name", nargs="?", help="show this scheme in full")
    name = parser.parse_all(arguments).name
    if name:
        print(_page(name))
    else:
        _table()
    return 0


def _parameters(name: str) -> list[str]:
    cls = lookup(name)
    limits = limits_of(cls)
    return [f"--{name}.{f.name.replace('_', '-')} {f.default}  {limits[f.name].help}" for f in dataclasses.fields(cls)]


def _page(name: str) -> str:
    cls = lookup(name)
    text = (sys.modules[cls.__module__].__doc__ or "").strip()
    parameters = "\n".join(f"  {line}" for line in _parameters(name)) or "  none"
    return f"{text}\n\nParameters, with their defaults:\n{parameters}\n\n{cls.paper.bibtex()}"


def _table() -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("scheme", "what it does", "paper", "parameters (default)"):
        table.add_column(heading)
    for name in names():
        cls = lookup(name)
        parameters = "\n".join(f"{f.name} ({f.default})" for f in dataclasses.fields(cls)) or "-"
        table.add_row(name, cls.summary, cls.paper.short(), parameters)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    print("`paceline schemes NAME` tells more of one, `paceline cite NAME` how to cite it.")
