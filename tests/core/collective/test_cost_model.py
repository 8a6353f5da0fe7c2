"""What schedules cost, by the usual model."""

from __future__ import annotations

import pytest

from paceline.core.collective import Path, cost_of

ALPHA, BETA = 1e-4, 1e-9


def plain(a: int, b: int) -> Path:
    return Path(ALPHA, ((("from", a), BETA), (("to", b), BETA)))


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_the_costs_are_those_of_the_literature(n: int) -> None:
    """Thakur, Rabenseifner and Gropp 2005, section 4: 2 (n-1) or 2 log n latencies, 2 (n-1)/n of the vector."""
    for name, steps in (("ring", 2 * (n - 1)), ("pairwise", 2 * (n - 1)), ("butterfly", 2 * (n.bit_length() - 1))):
        cost = cost_of(name, n, plain)
        assert cost.latency_s == pytest.approx(steps * ALPHA)
        assert cost.seconds_per_byte == pytest.approx(2 * (n - 1) / n * BETA)
    assert cost_of("blocks", n, plain) == pytest.approx(cost_of("butterfly", n, plain))


def test_a_ring_of_thousands_costs_no_more_to_reckon_than_one_step() -> None:
    cost = cost_of("ring", 5000, plain)
    assert (cost.latency_s, cost.seconds_per_byte) == (pytest.approx(9998 * ALPHA), pytest.approx(2 * 0.9998 * BETA))
