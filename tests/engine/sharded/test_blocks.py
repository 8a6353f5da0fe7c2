from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Partial, Replicate, Shard

from paceline.core.errors import ConfigError
from paceline.engine.sharded.blocks import PartLayout, TensorBlock, block_of, is_sharded, local_of, owners
from tests.engine.sharded.fake_ranks import fake_rank, parts_of, place


def layout(*blocks: TensorBlock, names: tuple[str, ...] = ("w",), shape: tuple[int, ...] = (4, 2)) -> PartLayout:
    return PartLayout(names=names, shapes=(shape,) * len(names), blocks=blocks)


def test_a_plain_tensor_is_one_block() -> None:
    assert block_of("w", torch.zeros(4, 2)) == TensorBlock((0, 0), (4, 2))
    assert not is_sharded(torch.zeros(1))


@pytest.mark.parametrize(
    ("rank", "expected"),
    [(0, TensorBlock((0, 0), (2, 3))), (1, TensorBlock((2, 0), (2, 3))), (2, TensorBlock((4, 0), (1, 3)))],
)
def test_rows_that_do_not_divide_evenly_leave_the_last_rank_fewer(rank: int, expected: TensorBlock) -> None:
    with fake_rank(rank, 3):
        model = place(nn.Linear(3, 5, bias=False), (3,), lambda name: [Shard(0)])
        assert block_of("weight", model.weight) == expected
    assert local_of(model.weight).shape == expected.shape  # type: ignore[arg-type]


def test_a_rank_may_hold_nothing() -> None:
    parts = parts_of(lambda: nn.Linear(3, 2, bias=False), (3,), lambda name: [Shard(0)])
    assert [one.layout("weights").blocks[0].numel for one in parts] == [3, 3, 0]


def test_a_mesh_of_two_dimensions_cuts_rows_and_columns() -> None:
    parts = parts_of(lambda: nn.Linear(4, 6, bias=False), (2, 2), lambda name: [Shard(0), Shard(1)])
    assert parts[3].layout("weights").blocks == (TensorBlock((3, 2), (3, 2)),)


def test_the_view_of_a_block_is_where_the_block_lies() -> None:
    whole = torch.arange(24.0).view(4, 6)
    assert torch.equal(TensorBlock((2, 1), (2, 3)).of(whole), whole[2:4, 1:4])
    assert TensorBlock((9, 0), (0, 6)).of(whole).numel() == 0


def test_of_equal_blocks_the_first_rank_sends_and_of_others_each() -> None:
    same = layout(TensorBlock((0, 0), (4, 2)))
    assert owners([same, same]) == [[0], []]
    assert owners([layout(TensorBlock((0, 0), (2, 2))), layout(TensorBlock((2, 0), (2, 2)))]) == [[0], [0]]


def test_ranks_that_hold_a_part_only_are_refused() -> None:
    half = layout(TensorBlock((0, 0), (2, 2)))
    with pytest.raises(ConfigError, match=r"do not hold each number of parameter w \[4, 2\] once: give"):
        owners([half, half])


def test_blocks_that_overlap_are_refused_even_if_their_sizes_add_up() -> None:
    with pytest.raises(ConfigError, match="do not hold each number"):
        owners([layout(TensorBlock((0, 0), (2, 2))), layout(TensorBlock((1, 0), (2, 2)))])


def test_ranks_with_other_parameters_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"ranks 0 and 1 .* hold different parameters \(v\)"):
        owners([layout(TensorBlock((0, 0), (4, 2))), layout(TensorBlock((0, 0), (4, 2)), names=("v",))])


def test_replicas_of_shards_are_sent_once() -> None:
    parts = parts_of(lambda: nn.Linear(2, 4, bias=False), (2, 2), lambda name: [Replicate(), Shard(0)])
    assert owners([one.layout("weights") for one in parts]) == [[0], [0], [], []]


def test_placements_that_are_no_blocks_are_refused() -> None:
    with fake_rank(0, 2), pytest.raises(ConfigError, match=r"parameter weight is placed as .*Partial"):
        model = place(nn.Linear(2, 4, bias=False), (2,), lambda name: [Partial()])
        block_of("weight", model.weight)
