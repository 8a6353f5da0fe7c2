"""ReduceLROnPlateau: the measurements of one worker change the rates of all."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import paceline
from paceline.core.errors import ConfigError
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.sharing.shared_plateau import SharedPlateau
from tests.runtime.own_loops import plain_sgd, run_loops, toy_data, toy_model

DATA = toy_data()
LOSSES = [1.0, 0.9, 0.95, 0.96, 0.97, 0.5, 0.6, 0.7, 0.8]


class Values:
    """Stands for the values of a run: what one worker shares the others have at once."""

    def __init__(self, shared: dict[str, Any], *, decides: bool) -> None:
        self.shared, self.decides, self.ended = shared, decides, False

    def share(self, name: str, value: Any) -> None:
        self.shared[name] = copy.deepcopy(value)

    def get(self, name: str, default: Any) -> Any:
        return self.shared.get(name, default)


def scheduler(lr: float = 0.4, **settings: Any) -> ReduceLROnPlateau:
    return ReduceLROnPlateau(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=lr), patience=1, factor=0.5, **settings)


def rate(of: ReduceLROnPlateau) -> float:
    return float(of.optimizer.param_groups[0]["lr"])


def of_workers(count: int) -> tuple[list[ReduceLROnPlateau], list[SharedPlateau], list[Values]]:
    shared: dict[str, Any] = {}
    values: Any = [Values(shared, decides=rank == 0) for rank in range(count)]
    schedulers = [scheduler() for _ in range(count)]
    return schedulers, [SharedPlateau(s, v, "p") for s, v in zip(schedulers, values, strict=True)], values


def test_the_rates_of_all_are_those_that_the_first_one_has_measured() -> None:
    plain = scheduler()
    (first, second), (_, follower), _ = of_workers(2)
    for loss in LOSSES:
        plain.step(loss)
        first.step(loss)
        second.step(100.0)  # its own measurement
        follower.follow()
        assert rate(first) == rate(second) == rate(plain)
    assert rate(plain) == 0.1
    assert plain.state_dict() == first.state_dict() == second.state_dict()


def test_one_that_decides_after_another_goes_on_from_its_measurements() -> None:
    plain = scheduler()
    (first, second), _, values = of_workers(2)
    for n, loss in enumerate(LOSSES):
        plain.step(loss)
        values[0].decides, values[1].decides = n < 4, n >= 4
        (first if n < 4 else second).step(loss)
    assert rate(second) == rate(plain)
    assert second.state_dict() == plain.state_dict()


def test_one_that_comes_later_gets_all_reductions_of_its_own_rate() -> None:
    (first, _), _, values = of_workers(2)
    for loss in LOSSES:
        first.step(loss)
    late = scheduler(lr=0.8)
    SharedPlateau(late, values[1], "p").follow()  # type: ignore[arg-type]
    assert rate(late) == pytest.approx(0.2)


def test_it_stays_a_scheduler_of_its_class_and_its_state_is_that_of_a_plain_one() -> None:
    class Own(ReduceLROnPlateau):
        pass

    own = Own(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.4))
    before = set(own.state_dict())
    SharedPlateau(own, Values({}, decides=True), "p")  # type: ignore[arg-type]
    own.step(0.5)
    assert isinstance(own, Own)
    assert set(own.state_dict()) == before


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_in_a_run_all_workers_end_with_the_same_rate(out: Path, scheme: str) -> None:
    rates: dict[int, float] = {}

    def loop(pace: Pace, model: nn.Module) -> None:
        plateau = pace.plateau(ReduceLROnPlateau(pace.optimizer, factor=0.5, patience=0))
        assert isinstance(plateau, ReduceLROnPlateau)
        for _ in range(4):
            for x, y in pace.batches(DATA, 8):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()
            plateau.step(1.0 if pace.rank == 0 else 1.0 / (1 + pace.steps))  # others see it fall
        pace.close()
        rates[pace.rank] = rate(plateau)

    run_loops(out, scheme, loop)
    assert rates == dict.fromkeys(range(3), 0.1 * 0.5**3)


def test_another_scheduler_is_refused_with_the_way_out(alone: None) -> None:
    model = toy_model()
    optimizer = plain_sgd(model.parameters())
    with paceline.join(model, optimizer, "bsp") as pace, pytest.raises(ConfigError, match=r"StepLR: pace\.scheduler$"):
        pace.plateau(StepLR(optimizer, 3))  # type: ignore[arg-type]
