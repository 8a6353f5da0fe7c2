"""`paceline cite NAME` prints a BibTeX entry for a scheme."""

from __future__ import annotations

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.cli.support.options import Parser
from paceline.core.scheme import lookup


def main(arguments: list[str]) -> int:
    """Prints the entry. Raises ConfigError for a name that no scheme has."""
    parser = Parser(prog="paceline cite", usage="paceline cite NAME", description=__doc__)
    parser.add_argument("name", help="a scheme; see `paceline schemes`")
    print(lookup(parser.parse_all(arguments).name).paper.bibtex())
    return 0
