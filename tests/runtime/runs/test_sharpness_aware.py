"""Sharpness-aware minimisation (Foret et al., 2021): weights are perturbed and restored within a step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model

STEPS = 12


class Sam(torch.optim.Optimizer):
    """As it is written everywhere; `restore` says how the weights come back."""

    def __init__(self, base: torch.optim.Optimizer, restore: str) -> None:
        super().__init__(base.param_groups, {"rho": 0.5})
        self.base, self.restore = base, restore
        self.param_groups = base.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        every = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in every]))
        for p in every:
            e = p.grad * (self.param_groups[0]["rho"] / (norm + 1e-12))
            self.state[p].update(before=p.detach().clone(), e=e)
            p.add_(e)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for p, state in self.state.items():
            if self.restore == "sub_":
                p.sub_(state["e"])
            elif self.restore == "p.data =":
                p.data = state["before"]
            elif self.restore == "p.data.copy_":
                p.data.copy_(state["before"])
            else:
                p.copy_(state["before"])
        self.base.step()
        self.zero_grad()


def loop(sam: Sam, model: nn.Module) -> None:
    x, y = toy_data().tensors
    for at in range(STEPS):
        for go_on in (sam.first_step, sam.second_step):
            nn.functional.cross_entropy(model(x[at * 7 : at * 7 + 7]), y[at * 7 : at * 7 + 7]).backward()
            go_on()


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


@pytest.mark.parametrize("restore", ["sub_", "p.data =", "p.data.copy_", "copy_"])
@pytest.mark.parametrize(
    ("scheme", "servers", "options"),
    [("bsp", 0, {}), ("bsp", 1, {}), ("asp", 1, {}), ("localsgd", 0, {"tau": 2}), ("esync", 0, {})],
)
def test_it_trains_what_the_plain_loop_trains_without_a_word(
    scheme: str, servers: int, options: dict[str, Any], restore: str, out: Path
) -> None:
    """Warnings are errors in these tests."""

    def shared(pace: Pace, model: nn.Module) -> None:
        loop(Sam(pace.optimizer, restore), model)
        assert (pace.steps, pace._worker.counts.samples) == (STEPS, STEPS * 7)

    wanted = toy_model()
    loop(Sam(momentum(wanted.parameters()), restore), wanted)
    _, models = run_loops(out, scheme, shared, workers=1, servers=servers, optimizer=momentum, **options)
    for p, q in zip(models[0].parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
