"""LARS and LAMB against their papers' formulas, written out in numpy for one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from paceline.engine.optim.lars_lamb import LAMB, LARS

SHAPES = ((3, 4), (4,), (1,), (2, 2, 2))
LENGTHS = tuple(int(np.prod(shape)) for shape in SHAPES)
STEPS = 12


def numbers(seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape) for shape in SHAPES]


def norm(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).sum()))


def lars(w: np.ndarray, gs: list[np.ndarray], gamma: float, m: float, beta: float, eta: float) -> np.ndarray:
    v = np.zeros_like(w)
    for g in gs:
        local = eta * norm(w) / (norm(g) + beta * norm(w)) if norm(w) and norm(g) else 1.0
        v = m * v + gamma * local * (g + beta * w)
        w = w - v
    return w


def lamb(
    w: np.ndarray, gs: list[np.ndarray], gamma: float, b1: float, b2: float, eps: float, decay: float
) -> np.ndarray:
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gs, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        r = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * w
        w = w - gamma * (norm(w) / norm(r) if norm(w) and norm(r) else 1.0) * r
    return w


KINDS: dict[str, tuple[Callable[..., torch.optim.Optimizer], Callable[..., np.ndarray]]] = {
    "lars": (
        lambda p, t=(): LARS(p, lr=0.5, momentum=0.9, weight_decay=0.01, trust=0.02, tensors=t),
        lambda w, gs: lars(w, gs, 0.5, 0.9, 0.01, 0.02),
    ),
    "lars without momentum": (
        lambda p, t=(): LARS(p, lr=0.5, momentum=0.0, trust=0.02, tensors=t),
        lambda w, gs: lars(w, gs, 0.5, 0.0, 0.0, 0.02),
    ),
    "lamb": (
        lambda p, t=(): LAMB(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, tensors=t),
        lambda w, gs: lamb(w, gs, 0.05, 0.8, 0.95, 1e-6, 0.1),
    ),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def wanted(formula: Callable[..., np.ndarray]) -> list[np.ndarray]:
    gradients = [numbers(step) for step in range(1, 1 + STEPS)]
    return [formula(w, [g[i] for g in gradients]) for i, w in enumerate(numbers(0))]


def test_over_parameters_it_is_the_papers_formula(kind: Any) -> None:
    make, formula = kind
    parameters = [torch.nn.Parameter(torch.tensor(w, dtype=torch.float32)) for w in numbers(0)]
    optimizer = make(parameters)
    for step in range(1, 1 + STEPS):
        for p, g in zip(parameters, numbers(step), strict=True):
            p.grad = torch.tensor(g, dtype=torch.float32)
        optimizer.step()
    for p, w in zip(parameters, wanted(formula), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-4, atol=1e-5)


def test_over_one_flat_parameter_every_tensor_is_treated_on_its_own(kind: Any) -> None:
    make, formula = kind

    def flat(arrays: list[np.ndarray]) -> torch.Tensor:
        return torch.tensor(np.concatenate([a.ravel() for a in arrays]), dtype=torch.float32)

    parameter = torch.nn.Parameter(flat(numbers(0)))
    optimizer = make([parameter], LENGTHS)
    for step in range(1, 1 + STEPS):
        parameter.grad = flat(numbers(step))
        optimizer.step()
    np.testing.assert_allclose(parameter.detach().numpy(), flat(wanted(formula)).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "step"), [(lambda p: LARS(p, lr=1.0), [3.0, 4.0]), (lambda p: LAMB(p, lr=1.0), [1.0, 1.0])]
)
def test_a_tensor_of_zeros_moves_by_its_step_as_it_is(make: Any, step: list[float]) -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    make([parameter]).step()
    torch.testing.assert_close(-parameter.detach(), torch.tensor(step), rtol=1e-4, atol=1e-4)


def test_a_gradient_of_zeros_moves_nothing() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    for optimizer in (LARS([parameter], lr=1.0), LAMB([parameter], lr=1.0)):
        parameter.grad = torch.zeros(2)
        optimizer.step()
    assert parameter.tolist() == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: LARS(p, lr=-1.0),
        lambda p: LARS(p, lr=1.0, weight_decay=-1.0),
        lambda p: LAMB(p, betas=(0.9, 1.0)),
        lambda p: LAMB(p, lr=-1.0),
    ],
)
def test_numbers_that_mean_nothing_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="Invalid"):
        make([torch.nn.Parameter(torch.ones(2))])
