"""The length of what comes, and the sum that follows, are the same whether or not one pass makes both."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.paramserver.gated_server import Push
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors import fused_passes, norm_probe
from paceline.engine.vectors.flat import Flat, norm
from paceline.engine.vectors.norm_probe import LENGTH_MIN, Probe

N = LENGTH_MIN + 77


def random(seed: int) -> Flat:
    return Flat.wrap(torch.randn(N, generator=torch.Generator().manual_seed(seed)))


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The ratio of every sum that was made while a length was asked for."""
    made: list[float] = []

    def counted(x: Any, y: Any, ratio: float, v: Any, out: Any) -> Any:
        made.append(ratio)
        return loop(x, y, ratio, v, out)

    loop = fused_passes.add_measured
    monkeypatch.setattr(fused_passes, "add_measured", counted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    return made


def weights(scheme: str, how: Callable[[Any, Any], float] | None, workers: int, **recipe: Any) -> list[Flat]:
    """After each push, on a server whose gate measures by `how`; with some pushes that are refused."""
    box = make(scheme, {}).server(1)
    assert box is not None
    gate = GradientCheckPolicy().gate(how, workers, 0, None) if how else None
    place = RoleContext(
        me=0,
        workers=tuple(range(workers)),
        w=random(0),
        update=make_rule(OptimizerRecipe(lr=0.1, **recipe)),
        gate=gate,
    )
    role, seen = box(make(scheme, {}), place), []
    for clock in range(1, 7):
        for rank in range(workers):
            g = random(10 * clock + rank) * (1.0 + (clock == 5))
            if how and (clock, rank) == (4, 0):
                bad = g.value().clone()
                bad[N // 2] = math.nan
                list(role.on(0.0, rank, Push(g=Flat.wrap(bad), clock=clock, samples=8)))
            else:
                list(role.on(0.0, rank, Push(g=g, clock=clock, samples=8)))
            seen.append(role.w)
    return seen


@pytest.mark.parametrize(
    ("scheme", "workers", "recipe", "at_least"),
    [
        ("asp", 1, {}, 3),
        ("asp", 2, {}, 8),
        ("bsp", 3, {}, 9),
        ("asp", 1, {"momentum": 0.9}, 2),
        ("asp", 1, {"momentum": 0.9, "weight_decay": 0.1}, 3),
        ("dcasgd", 2, {}, 0),
    ],
)
def test_weights_are_bit_for_bit_those_of_two_passes(
    fused: list[float], scheme: str, workers: int, recipe: dict[str, float], at_least: int
) -> None:
    two, one = weights(scheme, norm, workers, **recipe), weights(scheme, Probe(N), workers, **recipe)
    assert all(torch.equal(a.value(), b.value()) for a, b in zip(two, one, strict=True))
    assert len(fused) >= at_least


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e30])
@pytest.mark.parametrize("where", [0, N // 2, N - 1])
def test_no_number_that_is_not_fit_gets_by(fused: list[float], bad: float, where: int) -> None:
    ask, w = Probe(N), random(0)
    for step in range(4):
        g = random(step)
        assert ask(g, w) == pytest.approx(norm(g), rel=1e-4)
        w = w - g * 0.5
    numbers = random(9).value().clone()
    numbers[where] = bad
    before = len(fused)
    assert not math.isfinite(ask(Flat.wrap(numbers), w))
    assert len(fused) == before + 1
    assert (before, torch.isfinite(w.value()).all().item()) == (2, True)


def test_what_is_scaled_is_as_long_as_its_scale_says(fused: list[float]) -> None:
    ask, w = Probe(N), random(0)
    for step in range(4):
        g = random(step) * -3.0
        assert ask(g, w) == pytest.approx(norm(g), rel=1e-4)
        w = w + g
    assert fused == [-3.0, -3.0]


def test_short_vectors_and_several_threads_are_measured_by_a_pass_of_their_own(
    fused: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = norm_probe.LENGTH_MIN - 1
    for length, threads in ((short, 1), (N, 2)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        ask, w = Probe(length), Flat.wrap(torch.ones(length))
        for _ in range(4):
            g = Flat.wrap(torch.ones(length))
            assert ask(g, w) == pytest.approx(math.sqrt(length))
            w = w - g
    assert fused == []


def test_what_was_judged_is_not_kept_when_nobody_adds_it_to_anything(fused: list[float]) -> None:
    ask, w = Probe(N), random(0)
    for step in range(2):  # it has seen two sums alike, so the next is made ahead
        g = random(step)
        ask(g, w)
        w = w - g * 0.5
    g = random(9)
    ask(g, w)
    kept = [weakref.ref(g.tensor), weakref.ref(w.tensor)]
    assert fused == [-0.5]
    assert ask._made is not None
    del g, w
    assert [of() for of in kept] == [None, None]
    assert ask._made is None
