"""Shares of the data: each sample in one, and a share may be empty."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.core.scheme import names
from paceline.runtime.worker.loop.batch_feed import whole_epochs
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data
from tests.runtime.worker.test_pace import weights

OWN_BATCHES = [name for name in names() if name != "lbbsp"]
"""The schemes that leave it to the loop how many samples a batch has, so that it is known how many there are."""


@pytest.mark.parametrize("scheme", OWN_BATCHES)
@pytest.mark.parametrize("servers", [1, 2])
def test_uneven_numbers_of_batches_hang_nobody(out: Path, scheme: str, servers: int) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, data, epochs=1 + 3 * pace.rank)

    summary, models = run_loops(out, scheme, loop, servers=servers)
    assert [worker.steps for worker in summary.workers] == [4, 16, 28]
    torch.testing.assert_close(weights(models[0]), weights(models[2]))


@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_shares_with_nothing_for_one_hang_nobody(out: Path, scheme: str) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(data, 8, epochs=2, partition="fractions:5,0,1"):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    summary, _ = run_loops(out, scheme, loop)
    assert [worker.samples for worker in summary.workers] == [150, 0, 30]


def test_every_sample_is_in_one_share_exactly(out: Path) -> None:
    data = toy_data(91)
    seen: dict[int, list[torch.Tensor]] = {0: [], 1: [], 2: []}

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(data, 8):
            seen[pace.rank].append(x)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    run_loops(out, "asp", loop)
    rows = torch.cat([x for batches in seen.values() for x in batches])
    assert sorted(rows.tolist()) == sorted(data.tensors[0].tolist())


def test_epochs_are_whole_numbers_or_without_end() -> None:
    assert [whole_epochs(epochs) for epochs in (None, 0, 3, 3.0, torch.tensor(2))] == [None, 0, 3, 3, 2]
    for epochs in (-1, 0.5, float("inf"), float("nan"), "3", [3]):
        with pytest.raises(ConfigError, match=r"^epochs=.*: give a whole number, 0 or more, or None"):
            whole_epochs(epochs)
