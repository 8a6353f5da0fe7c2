"""What a run is compared with: torch.optim on the plain module, in one process, drawing the same samples."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from paceline.config import Config
from paceline.core.samples.batch_limits import own_batches
from paceline.engine.data.batches import Batches
from paceline.engine.data.partition_plan import make_partition
from paceline.engine.optim.lars_lamb import LAMB, LARS
from paceline.runtime.worker.train_loop import build_model, load_data

Weights = dict[str, Tensor]
RTOL, ATOL = 1e-4, 1e-5
"""Sums of several workers are rounded in another order than those of one process."""


def torch_optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    o = config.optimizer
    if o.name == "sgd":
        return torch.optim.SGD(
            model.parameters(), o.lr, momentum=o.momentum, nesterov=o.nesterov, weight_decay=o.weight_decay
        )
    if o.name == "lars":
        return LARS(model.parameters(), o.lr, o.momentum, o.weight_decay, o.trust)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "lamb": LAMB}[o.name]
    return kind(model.parameters(), o.lr, betas=(o.beta1, o.beta2), eps=o.eps, weight_decay=o.weight_decay)


def rate(config: Config, samples: int, train_samples: int) -> float:
    """The learning rate once `samples` have been seen, written out anew from the help of the settings."""
    s, lr = config.schedule, config.optimizer.lr
    if samples < round(s.warmup * train_samples):
        return lr * samples / round(s.warmup * train_samples)
    if s.name == "step":
        return lr * s.factor ** (samples // round(s.every * train_samples))
    if s.name == "cosine":
        warmup, total = round(s.warmup * train_samples), round(config.stop.epochs * train_samples)
        done = min(1.0, (samples - warmup) / (total - warmup))
        return lr * (s.floor + (1 - s.floor) * (1 + math.cos(math.pi * done)) / 2)
    return lr


def one_process(config: Config, steps: int) -> Weights:
    """`steps` updates with the mean over the samples of all workers' batches put together."""
    splits = load_data(config)
    model = build_model(config, splits)
    optimizer = torch_optimizer(config, model)
    n, workers = len(splits.train), config.cluster.workers
    own = own_batches(config.data.batch_size, config.batch_limits())
    shares = make_partition(config.data.partition, n, workers, splits.train.y.numpy(), config.run.seed, batches=own)
    streams = [Batches(splits.train, shares, rank, config.batch_of(rank)) for rank in range(workers)]
    seen = 0
    for _ in range(steps):
        batches = [next(stream) for stream in streams]
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        optimizer.param_groups[0]["lr"] = rate(config, seen, n)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if config.optimizer.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.clip_norm)
        optimizer.step()
        seen += len(y)
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def saved(config: Config) -> Weights:
    """The model a run left, by way of the plain module."""
    model = build_model(config, load_data(config))
    model.load_state_dict(load_file(Path(config.run.out) / "model.safetensors"))
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def same(got: Weights, wanted: Weights) -> bool:
    """Returns True if all tensors are equal but for rounding."""
    return got.keys() == wanted.keys() and all(
        torch.allclose(got[name], tensor, rtol=RTOL, atol=ATOL) for name, tensor in wanted.items()
    )
