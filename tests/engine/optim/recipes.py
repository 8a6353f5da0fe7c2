"""Recipes of optimizers, and the optimizers of torch that they stand for."""

from __future__ import annotations

import torch
from torch import nn

from paceline.engine.optim.lars_lamb import LAMB, LARS
from paceline.engine.specs import OptimizerRecipe

RECIPES = {
    "sgd": OptimizerRecipe(lr=0.1),
    "sgd-decay": OptimizerRecipe(lr=0.1, weight_decay=0.01),
    "sgd-momentum": OptimizerRecipe(lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd-nesterov": OptimizerRecipe(lr=0.1, momentum=0.9, nesterov=True),
    "adam": OptimizerRecipe(name="adam", lr=0.01, weight_decay=0.01),
    "adamw": OptimizerRecipe(name="adamw", lr=0.01, weight_decay=0.1, beta1=0.8, beta2=0.99, eps=1e-6),
    "lars": OptimizerRecipe(name="lars", lr=1.0, momentum=0.9, weight_decay=0.01, trust=0.02),
    "lamb": OptimizerRecipe(name="lamb", lr=0.01, weight_decay=0.1),
    "sgd-clipped": OptimizerRecipe(lr=0.1, momentum=0.9, clip_norm=0.3),
    "adam-clipped": OptimizerRecipe(name="adam", lr=0.01, clip_norm=0.1),
}


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4))


def torch_optimizer(module: nn.Module, r: OptimizerRecipe) -> torch.optim.Optimizer:
    if r.name == "sgd":
        return torch.optim.SGD(
            module.parameters(), lr=r.lr, momentum=r.momentum, nesterov=r.nesterov, weight_decay=r.weight_decay
        )
    if r.name == "lars":
        return LARS(module.parameters(), r.lr, r.momentum, r.weight_decay, r.trust)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "lamb": LAMB}[r.name]
    return kind(module.parameters(), lr=r.lr, betas=(r.beta1, r.beta2), eps=r.eps, weight_decay=r.weight_decay)
