"""Batch-norm statistics follow a policy; everything else is left alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import Flat


class Odd(nn.Module):
    """A batch norm under an odd name, and a buffer that is named like one and is none."""

    def __init__(self) -> None:
        super().__init__()
        self.tidy = nn.BatchNorm2d(3)
        self.untracked = nn.BatchNorm2d(3, track_running_stats=False)
        self.instance = nn.InstanceNorm2d(3, track_running_stats=True)
        self.register_buffer("running_mean", torch.ones(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.instance(self.untracked(self.tidy(x)))
        return y


def images(seed: int) -> torch.Tensor:
    return torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(seed)) * 2 + 1


def test_statistics_are_found_by_type_not_by_name() -> None:
    module = Odd()
    buffers = Buffers(module)
    assert len(buffers) == 8, "two for the count of batches"
    assert buffers.snapshot().value().tolist() == [0, 0, 0, 1, 1, 1, 0, 0]
    buffers.load(Flat.copy_of(torch.arange(8.0)))
    assert module.tidy.running_var.tolist() == [3, 4, 5]
    assert module.running_mean.tolist() == [1] * 5
    with pytest.raises(ValueError, match="2 statistics"):
        buffers.load(Flat.copy_of(torch.zeros(2)))


def test_training_moves_the_vector_and_a_snapshot_stays() -> None:
    module, plain = Odd(), Odd()
    buffers = Buffers(module)
    before = buffers.snapshot()
    for seed in range(3):
        module(images(seed))
        plain(images(seed))
    after = buffers.snapshot()
    wanted = torch.cat([plain.tidy.running_mean, plain.tidy.running_var, torch.tensor([0.0, 3.0])])
    assert torch.equal(after.value(), wanted)
    assert before.value().tolist() == [0, 0, 0, 1, 1, 1, 0, 0]
    assert int(module.tidy.num_batches_tracked) == 3
    buffers.load(before)
    assert int(module.tidy.num_batches_tracked) == 0


def test_the_average_is_weighted_by_samples() -> None:
    buffers = Buffers(nn.BatchNorm1d(1))
    a, b = (Flat.copy_of(torch.tensor([*v, 0.0, 3.0])) for v in ([0.0, 1.0], [4.0, 5.0]))
    assert buffers.exchanged
    assert buffers.average([a, b], [30, 10]).value().tolist() == [1.0, 2.0, 0, 6]
    assert buffers.average([a, b], [0, 10]).value().tolist() == [4.0, 5.0, 0, 6]
    assert buffers.average([a, b], [0, 0]).value().tolist() == [2.0, 3.0, 0, 6], "nobody has seen any"


def test_counts_of_batches_stay_whole_numbers_beyond_those_of_a_float() -> None:
    module = nn.BatchNorm1d(1)
    buffers = Buffers(module)
    assert module.num_batches_tracked is not None
    module.num_batches_tracked.fill_(2**26 + 1)
    shown = buffers.snapshot()
    buffers.load(buffers.average([shown, shown, shown], [1, 2, 4]))
    assert int(module.num_batches_tracked) == 3 * (2**26 + 1)
    assert module.num_batches_tracked.dtype == torch.int64


def test_local_statistics_are_not_averaged() -> None:
    buffers = Buffers(nn.BatchNorm1d(1), "local")
    a, b = (Flat.copy_of(torch.tensor(v)) for v in ([0.0, 1.0], [4.0, 5.0]))
    assert not buffers.exchanged
    assert buffers.average([a, b], [1, 1]) is a


def test_a_module_without_batch_norm_has_an_empty_vector() -> None:
    buffers = Buffers(nn.Linear(2, 2))
    assert len(buffers) == 0
    assert not buffers.exchanged
    assert len(buffers.snapshot()) == 0
    buffers.load(buffers.snapshot())


def test_the_state_dict_carries_the_statistics_as_copies() -> None:
    module, plain = Odd(), Odd()
    FlatModel(module)
    buffers = Buffers(module)
    buffers.load(Flat.copy_of(torch.arange(8.0)))
    state = module.state_dict()
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in state.values())
    plain.load_state_dict(state)
    assert plain.tidy.running_var.tolist() == [3, 4, 5]
    module.load_state_dict(Odd().state_dict())
    assert buffers.snapshot().value().tolist() == [0, 0, 0, 1, 1, 1, 0, 0]


def test_unknown_policies_and_types_are_refused() -> None:
    with pytest.raises(ConfigError, match="average, local"):
        Buffers(nn.Linear(1, 1), "global")
    with pytest.raises(ConfigError, match=r"0\.running_mean is torch\.float64"):
        Buffers(nn.Sequential(nn.BatchNorm1d(2).double()))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_the_statistics_of_a_gpu_and_of_cpu_workers_have_one_mean() -> None:
    module = Odd()
    module(images(0))
    there = Buffers(module).snapshot()
    here = Buffers(Odd().to("cuda"))
    assert here.average([here.snapshot(), there], [1.0, 3.0]).value()[-1] == 1, "the batches of both"
    assert torch.allclose(here.average([there, there], [1.0, 3.0]).value().cpu()[:6], there.value()[:6])
