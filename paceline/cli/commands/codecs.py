"""`paceline codecs` lists the codecs for gradient compression, or explains one."""

from __future__ import annotations

import dataclasses
import sys
import textwrap

from paceline.cli.commands.schemes import COLUMNS, entry, fitted
from paceline.cli.support.options import Parser
from paceline.codec import Codec, lookup, names
from paceline.core.scheme import limits_of
from paceline.observe.formatting.wrapping import columns

EPILOG = """`paceline codecs NAME` shows one in full: what it does, when to use it and when not, its parameters.
`--codec NAME` of train, race, launch and simulate encodes what workers send, `--codec-down NAME` what servers send;
parameters stand in parentheses: --codec "topk(ratio=0.02)"."""

NAME, WHAT = 11, 73
LENGTH = 1_000_000
"""Numbers of the vector whose encoded size a codec's page shows."""


def main(arguments: list[str]) -> int:
    """Prints the table of codecs, or the page of one. Raises ConfigError for a name that no codec has."""
    parser = Parser(prog="paceline codecs", usage="paceline codecs [NAME]", description=__doc__, epilog=EPILOG)
    parser.add_argument("name", nargs="?", help="show this codec in full")
    name = parser.parse_all(arguments).name
    print(page(name) if name else table())
    return 0


def table() -> str:
    """Returns the codecs as a table: the name, what is sent, and what becomes of weights."""
    rows = [f"  {name:<{NAME}}{lookup(name).summary:<{WHAT}} {weights(lookup(name)())}" for name in names()]
    head = f"  {'codec':<{NAME}}{'what it sends':<{WHAT}} of weights"
    return "\n".join([head, *rows, "", *textwrap.wrap(EPILOG.replace("\n", " "), COLUMNS)])


def weights(codec: Codec) -> str:
    """Says in a word or two what it does to weights."""
    return {"as they are": "the same", "by difference": "differences", "never": "refused"}[codec.weights]


def page(name: str) -> str:
    """Returns everything about one codec: its docstring, its parameters, its size for LENGTH numbers, how to cite it.

    Raises ConfigError where no codec has that name.
    """
    width = min(COLUMNS, columns(otherwise=COLUMNS))
    cls = lookup(name)
    limits = limits_of(cls)
    parameters = [
        entry(f"{f.name} = {str(f.default).lower()}", limits[f.name].help, 22, width)
        for f in dataclasses.fields(cls)
        if f.name in limits
    ]
    return "\n\n".join(
        [
            fitted((sys.modules[cls.__module__].__doc__ or "").strip(), width),
            "Parameters, with their defaults\n" + ("\n".join(parameters) or "  none"),
            f"Of weights it sends: {weights(cls())}\n"
            f"Bytes of {LENGTH} numbers: {cls().size(LENGTH, LENGTH)} instead of {4 * LENGTH}",
            *([cls.paper.bibtex()] if cls.paper else []),
        ]
    )
