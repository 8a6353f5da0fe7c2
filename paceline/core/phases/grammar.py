"""Reads a run in phases from text: `bsp until 2 epochs; ssp(staleness=2) until accuracy 0.9 or 60 seconds; esync`.

Phases stand one after the other with `;` between. Each is the name of a scheme, then its parameters in parentheses if
they differ from the defaults, then `until` with one condition or several with `or` between; the last phase has no
`until`. A text with `;`, `,` or `)` in it stands in double quotes: `gsp(groups="0,1;2,3")`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.core.parameter_syntax import parameters_in, with_parameters
from paceline.core.scheme import lookup, types_of

UNITS = ("steps", "seconds", "epochs", "accuracy")
WAY_OUT = "write phases as 'bsp until 2 epochs; esync'"

_PHASE = re.compile(r'\s*(?P<name>[\w-]+)\s*(?:\((?P<in>(?:[^()"]|"[^"]*")*)\))?\s*(?:until\b(?P<until>[^;]*))?(?:;|$)')


Condition = tuple[str, float]
"""A unit, which is one of UNITS, and how many of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A scheme with the `parameters` that were given; any of the conditions in `until` ends the phase."""

    scheme: str
    parameters: Mapping[str, Any]
    until: tuple[Condition, ...]

    def __str__(self) -> str:
        until = " or ".join(f"{unit} {x:g}" if unit == "accuracy" else f"{x:g} {unit}" for unit, x in self.until)
        return with_parameters(self.scheme, self.parameters) + (f" until {until}" if until else "")


def parse(text: str) -> tuple[Phase, ...]:
    """Returns the phases in `text`. Raises ValueError, with the way out, for what is no list of phases."""
    phases = tuple(_phases(text))
    for phase in phases[:-1]:
        if not phase.until:
            raise ValueError(f"{phase.scheme} would never end: say until when, as in '{phase.scheme} until 2 epochs'")
    if phases[-1].until:
        raise ValueError(f"the last phase, {phases[-1].scheme}, goes on until the run ends: leave out its 'until'")
    return phases


def _phases(text: str) -> Iterator[Phase]:
    """Yields the phases in order. Raises ValueError from the place on that cannot be read."""
    at = 0
    while at < len(text) or not at:
        found = _PHASE.match(text, at)
        if found is None:
            raise ValueError(f"cannot read {text[at:].strip()!r}; {WAY_OUT}")
        until = found["until"]
        yield Phase(
            scheme=found["name"],
            parameters=parameters_in(found["in"] or "", f"scheme {found['name']}", types_of(lookup(found["name"]))),
            until=() if until is None else tuple(_condition(part) for part in until.split(" or ")),
        )
        at = found.end()


def _condition(text: str) -> Condition:
    """Reads `2 epochs`, `1 step` or `accuracy 0.9`."""
    words = text.split()
    if len(words) == 2:
        unit, amount = words if words[0] == "accuracy" else reversed(words)
        unit = unit if unit in UNITS else f"{unit}s"
        if unit in UNITS and re.fullmatch(r"\d+(\.\d*)?", amount) and float(amount) > 0:
            return unit, float(amount)
    raise ValueError(f"cannot read 'until {text.strip()}'; write N steps, N seconds, N epochs or accuracy X")
