"""Optimizers of torch without rules of our own, and optimizers that a script might bring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023: the sign of an interpolated momentum. It writes to `p.data`, as older code does."""

    def __init__(
        self, params: Any, lr: float = 1e-2, beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.1
    ) -> None:
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.data.mul_(1 - group["lr"] * group["decay"])
                p.data.add_((m * group["beta1"] + p.grad * (1 - group["beta1"])).sign(), alpha=-group["lr"])
                m.mul_(group["beta2"]).add_(p.grad, alpha=1 - group["beta2"])


class MuonLike(torch.optim.Optimizer):
    """Looks at shapes: matrices get an orthogonal step, and a state that is no tensor of their size."""

    def __init__(self, params: Any, lr: float = 0.02, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                own = self.state[p]
                own["steps"] = own.get("steps", 0) + 1
                m = own.setdefault("m", torch.zeros_like(p)).mul_(group["momentum"]).add_(p.grad)
                if p.dim() == 2:
                    rows = own.setdefault("rows", torch.zeros(p.shape[0])).mul_(0.5).add_(p.grad.square().mean(1))
                    m = m / (m.norm() + 1e-6) / (rows.sqrt() + 1e-3)[:, None]
                p.sub_(m, alpha=group["lr"] / own["steps"] ** 0.25)
                p.grad.zero_()  # nobody else shall notice


class ScheduleFree(torch.optim.Optimizer):
    """Defazio et al. 2024: trains at y, between a plain iterate z and its average x, which `eval()` shows.

    As in the published package, its counts are in the groups, and `train()` has to be called before a step.
    """

    def __init__(self, params: Any, lr: float = 0.1, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "beta": beta, "k": 0, "sum": 0.0, "trains": False})

    def train(self) -> None:
        self._turn(trains=True, weight=lambda beta: 1 - beta)

    def eval(self) -> None:
        self._turn(trains=False, weight=lambda beta: 1 - 1 / beta)

    @torch.no_grad()
    def _turn(self, *, trains: bool, weight: Callable[[float], float]) -> None:
        for group in self.param_groups:
            for p in group["params"] if group["trains"] != trains else ():
                if "z" in self.state[p]:
                    p.lerp_(self.state[p]["z"], weight(group["beta"]))
            group["trains"] = trains

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if not group["trains"]:
                raise RuntimeError("optimizer.train() was not called")
            group["k"] += 1
            lr, beta = group["lr"] * min(1.0, group["k"] / 4), group["beta"]  # a warm-up
            group["sum"] += lr**2
            part = lr**2 / group["sum"]
            for p in group["params"]:
                if p.grad is not None:
                    z = self.state[p].setdefault("z", p.clone())
                    p.lerp_(z, part).add_(p.grad, alpha=lr * (beta * (1 - part) - 1))
                    z.sub_(p.grad, alpha=lr)


def schedule_free(named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    made = ScheduleFree([p for _, p in named])
    made.train()
    return made


def lion(named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    decayed = [p for name, p in named if name.endswith("weight")]
    return Lion(
        [{"params": decayed}, {"params": [p for name, p in named if not name.endswith("weight")], "decay": 0.0}]
    )


def muon_like(named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    return MuonLike([p for _, p in named])


def one_group_less(named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Makes as many groups as there are kinds of tensors, which differs from server to server."""
    groups = [[p for name, p in named if name.endswith(end)] for end in ("weight", "bias")]
    return Lion([{"params": group} for group in groups if group])


def no_optimizer(named: Sequence[tuple[str, nn.Parameter]]) -> Any:
    return len(named)


Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

OF_TORCH: dict[str, Make] = {
    "adadelta": lambda parameters: torch.optim.Adadelta(parameters, lr=1.0),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.05),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "rmsprop in groups": lambda parameters: _in_two(torch.optim.RMSprop, parameters, {"lr": 0.01}, {"momentum": 0.5}),
}


def _in_two(kind: Any, parameters: Iterable[nn.Parameter], *numbers: dict[str, Any]) -> torch.optim.Optimizer:
    every = list(parameters)
    groups = [{"params": every[i::2], **more} for i, more in enumerate(numbers)]
    return kind(groups, lr=0.005)  # type: ignore[no-any-return]
