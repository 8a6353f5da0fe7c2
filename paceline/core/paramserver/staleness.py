"""Weighs a contribution by its staleness: one pluggable function for every asynchronous scheme.

Y is one plus the number of updates applied between the weights a contribution was computed on and the moment it is
applied, so a fresh contribution has Y = 1 and weight 1 under every rule.

    none        1
    inverse     1/Y          Zhang et al. 2015 (arXiv 1511.05950); Jiang et al. 2019 (Grouping-SGD, WF)
    power       1/Y^p        Xie et al. 2019 (FedAsync, arXiv 1903.03934), polynomial
    exponential exp(-a(Y-1)) Chan & Lane 2014; a is the parameter
    cutoff      1 if Y <= limit else 0   drops what is too late
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

RULES = ("none", "inverse", "power", "exponential", "cutoff")


@dataclass(frozen=True, slots=True)
class Weighting:
    """`rule` is one of RULES; `parameter` is p, a or the limit where the rule has one.

    Raises ValueError for an unknown rule or a parameter out of range.
    """

    rule: str = "none"
    parameter: float = 1.0

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"unknown staleness weighting {self.rule!r}; choose one of {', '.join(RULES)}")
        if not (math.isfinite(self.parameter) and self.parameter > 0):
            raise ValueError(f"the parameter of staleness weighting must be positive, not {self.parameter}")

    def __call__(self, y: int) -> float:
        """Returns the weight of a contribution with Y = `y`, between 0 and 1."""
        return _RULES[self.rule](max(1, y), self.parameter)

    @classmethod
    def parse(cls, text: str) -> Weighting:
        """Reads `"inverse"` or `"power:0.5"`. Raises ValueError as the constructor does."""
        rule, _, parameter = text.partition(":")
        return cls(rule, float(parameter)) if parameter else cls(rule)


_RULES: dict[str, Callable[[int, float], float]] = {
    "none": lambda y, _: 1.0,
    "inverse": lambda y, _: 1.0 / y,
    "power": lambda y, p: float(y) ** -p,
    "exponential": lambda y, a: math.exp(-a * (y - 1)),
    "cutoff": lambda y, limit: 1.0 if y <= limit else 0.0,
}
