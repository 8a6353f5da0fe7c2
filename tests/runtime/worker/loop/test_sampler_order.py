"""All workers share the order of the user's sampler."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import WeightedRandomSampler

from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data
from tests.runtime.worker.loop.test_loader import DATA, train_on

X, Y = toy_data(90).tensors


@pytest.mark.parametrize("partition", ["uniform", "dynamic"])
def test_a_sampler_says_which_samples_there_are_and_all_workers_share_its_order(out: Path, partition: str) -> None:
    seen: list[int] = []
    weights = [float(i < 10) for i in range(90)]  # the others are never drawn

    def loop(pace: Pace, model: nn.Module) -> None:
        sampler = WeightedRandomSampler(weights, 40, generator=torch.Generator().manual_seed(1))
        for batch in pace.loader(DATA, 8, sampler=sampler, partition=partition):
            seen.extend(batch["inputs"]["number"].tolist())
            train_on(model, batch)
            pace.step()

    run_loops(out, "asp", loop)
    drawn = list(WeightedRandomSampler(weights, 40, generator=torch.Generator().manual_seed(1)))
    assert Counter(seen) == Counter(drawn)
