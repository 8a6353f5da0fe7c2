"""Asynchronous DiLoCo: delayed momentum, and fewer steps for slow workers."""

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from tests.schemes.fragments import delta, server


@pytest.mark.parametrize("c", [0.0, 0.25, 0.5])
def test_the_momentum_is_updated_every_n_arrivals_and_spread_by_c(c: float) -> None:
    s = server(outer_lr=0.5, outer_momentum=0.8, c=c)
    w, m, d, arrivals = 0.0, 0.0, 0.0, [1.0, 3.0, -2.0, 4.0, 0.5]
    for t, value in enumerate(arrivals):
        s.on(t % 2, delta(value, t // 2 + 1))
        d += value
        share = c
        if (t + 1) % 2 == 0:
            m, d, share = 0.8 * m + d / 2, 0.0, 1 - c * 2 + c
        w -= 0.5 * (share * 0.8 * m + value / 2)
        assert s.role.w == pytest.approx([w])


def test_slow_workers_are_told_to_make_fewer_steps() -> None:
    s = server(3, h=20)
    assert s.pull(0)[0].steps == 20
    assert s.on(0, delta(0.0, 1, speed=4.0))[0].steps == 20
    assert s.on(1, delta(0.0, 1, speed=1.0))[1].steps == 5
    assert s.on(2, delta(0.0, 1, speed=0.1))[2].steps == 1
    s.gone(0)
    assert s.on(1, delta(0.0, 2, speed=1.0))[1].steps == 20
    assert server(3, h=20, dynamic=False).on(1, delta(0.0, 1, speed=0.1))[1].steps == 20
