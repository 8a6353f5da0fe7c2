"""`paceline schemes` lists the schemes, or explains one."""

from __future__ import annotations

import textwrap

from paceline.cli.support import scheme_catalogue
from paceline.cli.support.options import Parser
from paceline.core.scheme import lookup
from paceline.observe.formatting.wrapping import columns

EPILOG = """`paceline schemes NAME` shows one scheme in full: its algorithm, when to use it and when not, what it
needs, its parameters, how to cite it."""

COLUMNS = 100
"""The most columns that a page uses, on a terminal that is wider, too."""
NAME, WHAT = 13, 60


def main(arguments: list[str]) -> int:
    """Prints the table of schemes, or the page of one. Raises ConfigError for a name that no scheme has."""
    parser = Parser(prog="paceline schemes", usage="paceline schemes [NAME]", description=__doc__, epilog=EPILOG)
    parser.add_argument("name", nargs="?", help="show this scheme in full")
    name = parser.parse_all(arguments).name
    print(page(name) if name else table())
    return 0


def table() -> str:
    """Returns all schemes by family, each with a line of what it does and its paper."""
    lines = []
    for family, members in scheme_catalogue.families().items():
        lines += [family, *(line for name in members for line in _row(name)), ""] if members else []
    return "\n".join(
        [
            *lines,
            "`paceline schemes NAME` shows one in full, `paceline cite NAME` how to cite it. Which one to take:",
            "`paceline advise` and `paceline simulate --schemes all` say, and `paceline race` on this machine.",
        ]
    )


def _row(name: str) -> list[str]:
    """Returns the lines of one scheme; a summary that is too long goes on below itself."""
    cls = lookup(name)
    first, *rest = textwrap.wrap(cls.summary, WHAT)
    return [f"  {name:<{NAME}}{first:<{WHAT + 1}} {cls.paper.short()}", *(" " * (NAME + 2) + line for line in rest)]


def page(name: str) -> str:
    """Returns everything about one scheme: its docstring with the paper's boxes, needs, parameters, BibTeX."""
    width = min(COLUMNS, columns(otherwise=COLUMNS))
    needs = scheme_catalogue.needs(name).items()
    return "\n\n".join(
        [
            fitted(scheme_catalogue.description(name), width),
            "Needs\n" + "\n".join(entry(what, text.replace("`", ""), 14, width) for what, text in needs),
            "Parameters, with their defaults\n" + (_parameters(name, width) or "  none"),
            lookup(name).paper.bibtex(),
        ]
    )


def fitted(text: str, columns: int) -> str:
    """Wraps paragraphs at `columns`; one with an indented line is a paper's box, and stays as it is."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(p if "\n " in f"\n{p}" else textwrap.fill(p, columns) for p in paragraphs)


def _parameters(name: str, columns: int) -> str:
    """Returns a line for each parameter of a scheme: its flag, default, help and limits."""
    known = list(scheme_catalogue.parameters(name))
    heads = [f"{p.flag} {p.default or repr('')}" for p in known]
    # A head that is longer than the column stands on a line of its own.
    width = min(34, max(map(len, heads), default=0) + 2)
    texts = [p.help + (f" ({p.limits})" if p.limits else "") for p in known]
    return "\n".join(entry(head, text, width, columns) for head, text in zip(heads, texts, strict=True))


def entry(head: str, text: str, width: int, columns: int) -> str:
    """Returns `text` wrapped in a column behind `head`; a head that is too long has a line of its own."""
    lines = textwrap.wrap(text, columns - width - 2)
    if len(head) >= width:
        return "\n".join([f"  {head}", *(" " * (width + 2) + line for line in lines)])
    return "\n".join([f"  {head:<{width}}{lines[0]}", *(" " * (width + 2) + line for line in lines[1:])])
