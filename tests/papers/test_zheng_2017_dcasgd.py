"""Zheng et al., Asynchronous Stochastic Gradient Descent with Delay Compensation, ICML 2017."""

import math

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.schemes import dcasgd
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.papers.sentences import says
from tests.role_driver import server


def test_the_correction_is_the_taylor_term_where_the_hessian_is_the_squared_gradient() -> None:
    """Section 3: "the first-order Taylor term of the gradient, its Hessian replaced by lambda g . g" is exact to first
    order where that is the Hessian: f(w) = exp(w) has g = f'' = exp(w), so at w = 0 lambda = 1 makes it so."""
    assert says(dcasgd, "the first-order Taylor term of the gradient, its Hessian replaced by lambda g . g")
    for moved in (1e-1, 1e-2, 1e-3):
        by_hand = server("dcasgd", lam=1.0, place={"update": lambda w, g, samples: w - g})
        by_hand.push(0, clock=1, g=-moved)  # w is `moved` away from where worker 1 computes
        before = by_hand.role.w
        by_hand.push(1, clock=1, g=math.exp(0.0))
        compensated = float((before - by_hand.role.w)[0])
        assert abs(compensated - math.exp(moved)) < moved**2 < abs(1.0 - math.exp(moved)) * moved


@pytest.mark.parametrize(("variant", "lam"), [("constant", 1.0), ("adaptive", 0.5)])
def test_it_converges_where_asgd_oscillates(variant: str, lam: float) -> None:
    """Abstract: "... compensates the delayed gradients ... outperforms both synchronous SGD and asynchronous SGD". On a
    least-squares problem whose squared residuals tell of the curvature, with a learning rate at which the delay makes
    ASGD swing, the corrected run is nearer to the optimum."""
    goal = np.array([1.0, -2.0, 0.5])

    def distance(name: str, **parameters: object) -> float:
        work = LocalSteps(lambda rank, rng: 1.0 + 0.01 * rank, lambda rank, w: w - goal)
        scheme = make(name, dict(parameters))
        sim = Simulation(scheme, np.zeros(3), work, workers=8, update_factory=plain_sgd(0.3)).run(until=12)
        return float(np.abs(sim.model() - goal).max())

    assert distance("dcasgd", variant=variant, lam=lam) < 0.9 * distance("asp")
