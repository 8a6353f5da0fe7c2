from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Shard

from paceline.core.errors import ConfigError
from paceline.engine.sharded.local_parts import GRADIENTS, REST, WEIGHTS, LocalParts, unwrapped
from tests.engine.sharded.fake_ranks import parts_of, set_gradients, sgd


def rank_of(model: nn.Module, rank: int = 0) -> LocalParts:
    """What one of two ranks holds of `model`, whose parameters are cut into rows."""
    return parts_of(lambda: copy.deepcopy(model), (2,), lambda name: [Shard(0)])[rank]


def test_weights_are_packed_in_the_order_of_the_vector_and_come_back() -> None:
    model = nn.Linear(3, 4)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    parts = rank_of(model, 1)
    packed = parts.pack(WEIGHTS, [0, 1])
    assert torch.equal(packed, torch.cat([weight[2:].reshape(-1), bias[2:]]))
    parts.unpack(WEIGHTS, packed + 1)
    assert torch.equal(parts.pack(WEIGHTS, [1]), bias[2:] + 1)
    assert parts.length(WEIGHTS) == 8


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="9 numbers of weights for a part of 8"):
        rank_of(nn.Linear(3, 4)).unpack(WEIGHTS, torch.zeros(9))


def test_a_parameter_without_a_gradient_has_zeros_and_counts_as_unused() -> None:
    parts = rank_of(nn.Linear(3, 4))
    set_gradients([parts], {"weight": torch.ones(4, 3), "bias": torch.zeros(4)})
    parts.parameters[1].grad = None
    assert parts.used() == [True, False]
    assert torch.equal(parts.pack(GRADIENTS, [0, 1]), torch.tensor([1.0] * 6 + [0.0] * 2))
    assert not parts.gradient_is_zero()
    parts.zero_grad()
    assert not parts.has_gradient


def test_buffers_and_frozen_parameters_travel_as_bytes_of_their_own_type() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[0].weight.requires_grad_(False)
    parts = rank_of(model)
    assert set(parts.rest) == {"0.weight", "1.running_mean", "1.running_var", "1.num_batches_tracked"}
    parts.rest["1.num_batches_tracked"].fill_(7)
    packed = parts.pack(REST, range(4))
    assert packed.dtype == torch.uint8
    parts.rest["1.num_batches_tracked"].fill_(0)
    parts.unpack(REST, packed)
    assert int(parts.rest["1.num_batches_tracked"]) == 7


def test_a_buffer_that_somebody_has_replaced_is_found() -> None:
    parts = rank_of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    parts.module.get_submodule("1").running_mean = torch.tensor([3.0, 4.0])
    assert parts.rest["1.running_mean"].tolist() == [3.0, 4.0]


def test_weights_that_are_kept_come_back() -> None:
    parts = rank_of(nn.Linear(3, 4))
    before = parts.pack(WEIGHTS, [0, 1])
    parts.keep()
    parts.unpack(WEIGHTS, torch.zeros(8))
    parts.restore()
    assert torch.equal(parts.pack(WEIGHTS, [0, 1]), before)


def test_a_model_whose_gradients_nobody_averages_is_refused() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="nothing averages the gradients .* wrap the model in Distributed"):
        LocalParts(model, sgd(model))


def test_parameters_of_16_bits_are_refused_with_the_way_out() -> None:
    model = nn.Linear(2, 2).bfloat16()
    with pytest.raises(ConfigError, match=r"weight is torch.bfloat16: .* give fully_shard an mp_policy"):
        rank_of(model)


def test_a_parameter_without_numbers_is_refused() -> None:
    with pytest.raises(ConfigError, match="weight has no numbers yet"):
        rank_of(nn.Linear(2, 2).to("meta"))


def test_what_is_in_ddp_is_what_counts() -> None:
    class DistributedDataParallel(nn.Module):
        """Is taken for torch's by its name."""

        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    inner = nn.Linear(2, 2)
    wrapped = DistributedDataParallel(inner)
    assert unwrapped(wrapped) is inner
    assert list(LocalParts(wrapped, sgd(wrapped)).trained) == ["weight", "bias"]


def test_blocks_are_written_where_they_lie_in_the_whole_and_read_from_there() -> None:
    model = nn.Linear(3, 4)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    parts, room = rank_of(model, 1), torch.zeros(16)
    whole = parts.cut(room)
    assert [tuple(t.shape) for t in whole] == [(4, 3), (4,)]
    with torch.no_grad():
        parts.write(WEIGHTS, [0], whole)
        assert torch.equal(room, torch.cat([torch.zeros(6), weight[2:].reshape(-1), torch.zeros(4)]))
        room.copy_(torch.arange(16.0))
        parts.read(whole)
        parts.write(GRADIENTS, [1], whole)
    assert parts.pack(WEIGHTS, [0, 1]).tolist() == [6, 7, 8, 9, 10, 11, 14, 15]
    assert room[12:].tolist() == [12, 13, 0, 0], "there is no gradient"
    assert not torch.equal(bias, room[12:])
