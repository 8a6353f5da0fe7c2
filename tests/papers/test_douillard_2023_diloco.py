"""Douillard et al., DiLoCo (2023) and Streaming DiLoCo (2025); Liu et al., asynchronous local SGD (2024)."""

from typing import Any

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.schemes import asyncdiloco, diloco
from paceline.schemes.asyncdiloco import LocalDelta
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says
from tests.role_driver import ByHand


def run(rounds: int, **parameters: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w * 0.0 + 1.0, lr=0.1)
    sim = Simulation(make("diloco", parameters), np.zeros(6), work, workers=2, servers=1)
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == rounds)


def test_the_outer_optimizer_is_nesterov_momentum() -> None:
    """ "v <- mu v + Delta; w <- w - lr (Delta + mu v)" """
    assert says(diloco, "v <- mu v + Delta; w <- w - lr (Delta + mu v)")
    w, v = 0.0, 0.0
    for _ in range(5):
        v = 0.9 * v + 0.5
        w -= 0.7 * (0.5 + 0.9 * v)
    assert run(5, h=5).model() == pytest.approx([w] * 6)


def test_every_fragment_is_exchanged_every_h_steps_and_one_at_a_time() -> None:
    """ "one of them is exchanged every H / P steps, in turn, so each one every H steps" """
    assert says(diloco, "one of them is exchanged every H / P steps, in turn, so each one every H steps")
    plain = {"outer_lr": 1.0, "outer_momentum": 0.0}
    after = [run(rounds, h=6, fragments=3, **plain).model() / -0.1 for rounds in (1, 2, 3, 4)]
    assert [pytest.approx(list(w)) for w in after] == [
        [2, 2, 0, 0, 0, 0],
        [2, 2, 4, 4, 0, 0],
        [2, 2, 4, 4, 6, 6],
        [8, 8, 4, 4, 6, 6],
    ]


def test_alpha_mixes_what_was_learnt_meanwhile_with_what_came_back() -> None:
    """ "x_i,p <- alpha x_i,p + (1 - alpha) w_p" """
    assert says(diloco, "x_i,p <- alpha x_i,p + (1 - alpha) w_p")
    plain = {"h": 5, "delay": 2, "outer_lr": 1.0, "outer_momentum": 0.0}
    x = {alpha: run(1, alpha=alpha, **plain).worker(0).x[0] / -0.1 for alpha in (0.0, 0.5, 1.0)}
    assert x == {0.0: pytest.approx(5), 0.5: pytest.approx(6), 1.0: pytest.approx(7)}


def arrive(n: int, c: float) -> float:
    """Where the weight is after n arrivals of a pseudo-gradient of 1, at N = 4."""
    scheme = make("asyncdiloco", {"outer_lr": 1.0, "outer_momentum": 0.5, "c": c})
    server = ByHand(scheme.Server, scheme, workers=4)
    for t in range(n):
        server.on(t % 4, LocalDelta(delta=np.ones(1), clock=t // 4 + 1, samples=1, speed=1.0))
    return float(server.role.w[0])


def test_momentum_is_delayed_until_n_pseudo_gradients_came() -> None:
    """ "every N-th time: m <- beta m + D / N" and "otherwise: w <- w - eps (c beta m + Delta / N)" """
    assert says(asyncdiloco, "every N-th time: m <- beta m + D / N")
    assert says(asyncdiloco, "otherwise: w <- w - eps (c beta m + Delta / N)")
    assert [arrive(n, 0.0) for n in (1, 2, 3)] == [-0.25, -0.5, -0.75], "plain steps, without momentum"
    assert arrive(4, 0.0) == -1.0 - 0.5 * 1.0, "and then all of it at once"
    assert arrive(5, 0.25) == arrive(4, 0.25) - 0.25 - 0.25 * 0.5 * 1.0, "or a share of it with every arrival"


@pytest.mark.parametrize("c", [0.0, 0.1, 0.25])
def test_however_it_is_spread_a_full_round_applies_the_momentum_once(c: float) -> None:
    """((N - 1) c + 1 - c N + c) beta m = beta m, so with a steady momentum a round moves the same for every c."""
    steady = 1 / (1 - 0.5)
    assert arrive(200, c) - arrive(204, c) == pytest.approx(1 + 0.5 * steady)


def test_all_exchange_about_equally_often() -> None:
    """ "So all exchange about equally often" """
    assert says(asyncdiloco, "So all exchange about equally often")
    work = LocalSteps(lambda rank, rng: (0.1, 0.3, 1.0)[rank], lambda rank, w: w * 0.0)
    sim = Simulation(make("asyncdiloco", {"h": 30}), np.zeros(1), work, workers=3, servers=1).run(until=300)
    clocks = sim.server(0).clocks
    assert max(clocks.values()) < 1.2 * min(clocks.values())
