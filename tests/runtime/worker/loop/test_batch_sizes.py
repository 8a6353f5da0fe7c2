"""Batches whose size the scheme says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data
from tests.runtime.worker.test_pace import weights


@pytest.mark.parametrize("servers", [1, 2])
def test_a_scheme_that_sizes_the_batches_uses_up_every_share_all_the_same(out: Path, servers: int) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, data, epochs=1 + pace.rank)

    summary, models = run_loops(out, "lbbsp", loop, servers=servers)
    assert [worker.samples for worker in summary.workers] == [30, 60, 90]
    torch.testing.assert_close(weights(models[0]), weights(models[2]))
