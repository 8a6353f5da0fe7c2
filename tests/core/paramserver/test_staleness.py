import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.paramserver.staleness import RULES, Weighting


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("none", [1, 1, 1, 1]),
        ("inverse", [1, 1 / 2, 1 / 3, 1 / 4]),
        ("power:0.5", [1, 2**-0.5, 3**-0.5, 0.5]),
        ("power:1", [1, 1 / 2, 1 / 3, 1 / 4]),
        ("exponential:0.3", [1, math.exp(-0.3), math.exp(-0.6), math.exp(-0.9)]),
        ("cutoff:2", [1, 1, 0, 0]),
    ],
)
def test_each_rule_is_its_formula(text: str, weights: list[float]) -> None:
    assert [Weighting.parse(text)(y) for y in (1, 2, 3, 4)] == pytest.approx(weights, rel=1e-12)


@given(st.sampled_from(RULES), st.floats(0.01, 10), st.integers(1, 1000))
def test_a_fresh_contribution_counts_fully_and_a_later_one_never_more(rule: str, parameter: float, y: int) -> None:
    weigh = Weighting(rule, max(parameter, 1.0) if rule == "cutoff" else parameter)
    assert weigh(1) == 1
    assert 0 <= weigh(y + 1) <= weigh(y) <= 1


@pytest.mark.parametrize("text", ["invers", "power:0", "power:-1", "power:x", "power:nan", "power:inf", ""])
def test_what_is_no_weighting_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Weighting.parse(text)


def test_an_unknown_rule_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="choose one of none, inverse, power, exponential, cutoff"):
        Weighting.parse("linear")
