from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Shard

from paceline.engine.optim.own_optimizer import packed
from paceline.engine.sharded.local_parts import LocalParts
from paceline.engine.sharded.local_state import LocalState
from tests.engine.sharded.fake_ranks import Placements, parts_of, set_gradients
from tests.engine.sharded.test_gathered_model import CASES, model_of

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "SGD with momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=0.1),
    "RMSprop, centred": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.1, centered=True),
}


def gradients(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {name: torch.randn(p.shape) for name, p in model_of().named_parameters()}


def trained_parts(
    shape: tuple[int, ...], placements: Placements, optimizer: MakeOptimizer, steps: int = 2
) -> list[LocalParts]:
    """The parts of ranks whose optimizers have made some steps."""
    parts = parts_of(model_of, shape, placements, optimizer)
    for seed in range(steps):
        set_gradients(parts, gradients(seed))
        for one in parts:
            one.optimizer.step()
    return parts


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_comes_back_in_the_types_and_places_of_torch(name: str) -> None:
    one = trained_parts((2,), lambda name: [Shard(0)], OPTIMIZERS[name])[1]
    before = {p: dict(own) for p, own in one.optimizer.state.items()}
    state = LocalState(one)
    taken = state.take()
    one.optimizer.state.clear()
    state.load(taken)
    assert list(one.optimizer.state) == list(before)
    for p, own in before.items():
        found = one.optimizer.state[p]
        assert found.keys() == own.keys()
        for key, v in own.items():
            assert type(found[key]) is type(v)
            assert torch.equal(getattr(found[key], "_local_tensor", found[key]), getattr(v, "_local_tensor", v))


def test_before_the_first_step_there_is_no_state() -> None:
    one = trained_parts((2,), lambda name: [Shard(0)], OPTIMIZERS["AdamW"], steps=0)[0]
    assert LocalState(one).take() == {}


def test_only_owned_blocks_are_sent_and_what_is_missing_is_zeros() -> None:
    one = trained_parts((2,), lambda name: [Shard(0)], OPTIMIZERS["AdamW"])[0]
    state = LocalState(one)
    taken = state.take()
    whole = taken["exp_avg"]
    assert isinstance(whole, torch.Tensor)
    assert torch.equal(state.owned(taken, "exp_avg", [0]), whole[:9]), "three of the five rows of 0.weight"
    assert state.owned(taken, "exp_avg", []).shape == (0,)
    assert not state.owned(taken, "max_exp_avg_sq", [0, 1]).any()


def test_a_tensor_of_another_shape_than_its_parameter_is_no_block() -> None:
    one = trained_parts((2,), lambda name: [Shard(0)], OPTIMIZERS["AdamW"])[0]
    assert LocalState(one).is_by_blocks
    one.optimizer.state[one.parameters[0]]["row_var"] = torch.ones(5, 1)
    assert not LocalState(one).is_by_blocks


@pytest.mark.parametrize("case", CASES)
def test_replicas_and_parts_hold_what_one_process_holds(case: str) -> None:
    model = model_of()
    alone = OPTIMIZERS["AdamW"](model)
    for seed in range(2):
        for name, p in model.named_parameters():
            p.grad = gradients(seed)[name]
        alone.step()
    wanted = packed(alone, [*model.parameters()])
    for one in trained_parts(*CASES[case], OPTIMIZERS["AdamW"]):
        found = LocalState(one).take()
        assert found.keys() == wanted.keys()
        layout = one.layout("weights")
        moments, whole = found["exp_avg"], wanted["exp_avg"]
        assert isinstance(moments, torch.Tensor)
        assert isinstance(whole, torch.Tensor)
        pieces = torch.split(whole, [p.numel() for p in model.parameters()])
        blocks = [
            block.of(piece.view(shape)).reshape(-1)
            for block, piece, shape in zip(layout.blocks, pieces, layout.shapes, strict=True)
        ]
        assert torch.allclose(moments, torch.cat(blocks))
