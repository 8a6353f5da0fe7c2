"""Prints the scheme's algorithm as its papers do, with the places where a worker may stand.

A line of the worker's box often has several statements: `g <- grad f_i(w);  push g;  w <- pull`. Each statement is a
piece. The first that computes, the first that hands over and the first that takes are where workers stand that are
computing, communicating and waiting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.observe.watch.waits.worker_rates import ACTIVITIES

OTHERS = re.compile(r"^\s*(server|coordinator|controller|synchronous)")
"""Lines of other parties begin so: the worker's box ends there."""
STATEMENT = re.compile(r"(\s*(?:worker \w+:\s*)?(?:repeat\s+)?)([^;]*?(?:;|(?=\s*$)))(\s*)")
"""Who, and how often; what; and the spaces after it."""
SIGNS = {
    "computing": re.compile(r"grad|local step|work at|InnerOpt|own box|worker's box|\bg_i\(|d_i\b"),
    "communicating": re.compile(r"\b(push|send|report|give|hand)"),
    "waiting": re.compile(r"pull|answer|Mean|receive|draw|rendezvous|x~|<- sum|step t \+ tau"),
}
"""By activity, what a statement contains during which a worker is at it."""
INSTEAD = {
    "computing": ("communicating", "waiting"),
    "communicating": ("waiting", "computing"),
    "waiting": ("communicating", "computing"),
}
"""By activity, where workers stand instead if no statement has its sign."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Holds a piece of the text. `at`: the activities of the workers that stand here."""

    text: str
    at: tuple[str, ...] = ()


def box(description: str) -> tuple[tuple[TextPiece, ...], ...]:
    """Returns the lines of the first indented paragraph of a scheme's docstring; () where there is no such
    paragraph."""
    paragraph = next((p for p in description.split("\n\n") if p.startswith(" ")), "")
    lines = paragraph.split("\n") if paragraph else []
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    pieces = [[text for parts in STATEMENT.findall(line[margin:]) for text in parts if text] for line in lines]
    places = _places(pieces)
    return tuple(
        tuple(TextPiece(text, places.get((row, column), ())) for column, text in enumerate(line))
        for row, line in enumerate(pieces)
    )


def _places(pieces: list[list[str]]) -> dict[tuple[int, int], tuple[str, ...]]:
    """Returns which activities are at which piece of which line."""
    found: dict[str, tuple[int, int]] = {}
    for row, line in enumerate(pieces):
        if row and OTHERS.match(line[0] if line else ""):
            break
        for column, text in enumerate(line):
            for activity, sign in SIGNS.items():
                if activity not in found and sign.search(text):
                    found[activity] = (row, column)
    if not found:
        return {}
    places: dict[tuple[int, int], tuple[str, ...]] = {}
    for activity in ACTIVITIES:
        where = found.get(activity) or next(found[other] for other in INSTEAD[activity] if other in found)
        places[where] = (*places.get(where, ()), activity)
    return places
