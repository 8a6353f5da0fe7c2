"""A GAN: two models, two optimizers, one loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from paceline.engine.model.several_models import together
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data

X = toy_data().tensors[0]


NOISE = torch.randn(len(X), 3, generator=torch.Generator().manual_seed(7))


BATCH = 9


Models = dict[str, nn.Module]


Optimizers = dict[str, torch.optim.Optimizer]


Make = Callable[[Any], Optimizers]


def models() -> Models:
    generator = torch.Generator().manual_seed(3)
    made: Models = {
        "D": nn.Sequential(nn.Linear(6, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1)),
        "G": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6)),
    }
    for model in made.values():
        for p in model.parameters():
            nn.init.normal_(p, std=0.4, generator=generator)
    return made


def adams(of: Any) -> Optimizers:
    """As dcgan has them, but for rates of their own."""
    return {
        "D": torch.optim.Adam(of["D"].parameters(), lr=0.02, betas=(0.5, 0.999)),
        "G": torch.optim.Adam(of["G"].parameters(), lr=0.01, betas=(0.5, 0.999), weight_decay=0.1),
    }


def of_discriminator(of: Any, x: Tensor, z: Tensor, samples: int = 0) -> Tensor:
    real, fake = of["D"](x), of["D"](of["G"](z).detach())
    loss = bce(real, torch.ones_like(real)) + bce(fake, torch.zeros_like(fake))
    return loss * (len(x) / samples) if samples else loss


def of_generator(of: Any, x: Tensor, z: Tensor, samples: int = 0) -> Tensor:
    found = of["D"](of["G"](z))
    loss = bce(found, torch.ones_like(found))
    return loss * (len(x) / samples) if samples else loss


def batches(rank: int = 0, workers: int = 1, epochs: int = 2) -> list[tuple[Tensor, Tensor]]:
    return [
        (X[start : start + BATCH], NOISE[start : start + BATCH])
        for _ in range(epochs)
        for start in range(rank * BATCH, len(X), workers * BATCH)
    ]


def assert_same(found: Any, wanted: Models) -> None:
    for name, model in wanted.items():
        for key, value in model.state_dict().items():
            torch.testing.assert_close(found[name].state_dict()[key], value, rtol=1e-5, atol=1e-6)


def run(tmp_path: Path, scheme: str, loop: Callable[[Pace, Any], None], make: Make, **more: Any) -> Any:
    return run_loops(
        tmp_path,
        scheme,
        loop,
        make_model=lambda: nn.ModuleDict(models()),
        held=lambda model: model,  # type: ignore[arg-type, return-value]
        optimizer=lambda model: together(dict(model.items()), make(model))[1],  # type: ignore[attr-defined]
        **more,
    )
