"""Batch-norm statistics of a run are those of the plain loop: measuring a step leaves nothing in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.trial_pass import unchanged
from tests.runtime.conftest import Runner
from tests.runtime.one_process import assert_same, config_for, one_process, saved

pytestmark = pytest.mark.usefixtures("patient")
STEPS = 4


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_one_worker_has_the_statistics_of_the_plain_loop(threads: Runner, out: Path, name: str, scheme: str) -> None:
    model = {"name": name, "width": 0.25 if name == "cnn" else 0.125}
    config = config_for(out, steps=STEPS, workers=1, scheme=scheme, model=model, optimizer={"lr": 0.02})
    threads(config)
    assert_same(saved(config), one_process(config, STEPS))


def test_the_count_of_batches_is_that_of_all_workers(threads: Runner, out: Path) -> None:
    config = config_for(out, steps=STEPS, workers=2, model={"name": "cnn", "width": 0.25}, optimizer={"lr": 0.02})
    threads(config)
    counts = [int(tensor) for name, tensor in saved(config).items() if name.endswith("num_batches_tracked")]
    assert counts
    assert set(counts) == {2 * STEPS}


@pytest.mark.parametrize("flat", [False, True])
def test_trial_passes_leave_a_module_and_the_generator_as_they_were(flat: bool) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None), nn.Dropout(0.5))
    if flat:
        FlatModel(module)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    gradients = [p.grad for p in module.parameters()]
    generator = torch.get_rng_state()
    with unchanged(module):
        module(torch.randn(8, 3)).square().sum().backward()
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert torch.equal(torch.get_rng_state(), generator)
    for p, gradient in zip(module.parameters(), gradients, strict=True):
        assert p.grad is gradient
        assert gradient is None or not gradient.any()
