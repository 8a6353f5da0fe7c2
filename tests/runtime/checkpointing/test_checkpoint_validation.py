"""A checkpoint of slices that differ restores each of them."""

from __future__ import annotations

from pathlib import Path

import torch

from paceline.checkpoint.folder_store import FolderStore
from paceline.core.sharding import lay_out
from paceline.engine.optim.optimizers import SGD
from paceline.engine.specs import OptimizerRecipe
from paceline.runtime.checkpointing.checkpoint_validation import OPTIMIZER
from paceline.runtime.checkpointing.resume import ResumePoint, parts_of
from paceline.runtime.checkpointing.slice_capture import WEIGHTS, load_rule, state_of
from tests.runtime.checkpointing.slices import Node, config, keeper, trained

WORKERS, LENGTH = 3, 6


SAMPLES = (32, 17, 32)


RECIPE = OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9)


def momentum(rule: SGD) -> torch.Tensor:
    assert rule.v is not None
    return rule.v.value()


def test_slices_that_heard_pushes_in_another_order_go_on_with_their_own_momentum(tmp_path: Path) -> None:
    layout = lay_out(LENGTH, 2)
    slices = [trained(layout.slices[0], (0, 1, 2)), trained(layout.slices[1], (1, 2, 0))]
    scales = {rule.v.scale for _, rule in slices if rule.v is not None}
    assert len(scales) == 2, "or this test shows nothing"
    node = Node([state_of(role, rule) for role, rule in slices])
    keeper(tmp_path, node, layout).save(0.5)
    folder = FolderStore(tmp_path / "checkpoints")
    (number,) = folder.numbers()
    start = ResumePoint(config(tmp_path), folder, number, folder.verify(number))
    assert "numbers_of" not in start.facts
    for part, (_, rule) in zip(layout.slices, slices, strict=True):
        again = SGD(RECIPE)
        load_rule(again, start.facts["numbers"], parts_of(start.tensors(OPTIMIZER), part))
        torch.testing.assert_close(momentum(again), momentum(rule))


def test_slices_of_one_scale_are_kept_to_the_bit(tmp_path: Path) -> None:
    layout = lay_out(LENGTH, 2)
    slices = [trained(part, (0, 1, 2)) for part in layout.slices]
    keeper(tmp_path, Node([state_of(role, rule) for role, rule in slices]), layout).save(0.5)
    folder = FolderStore(tmp_path / "checkpoints")
    start = ResumePoint(config(tmp_path), folder, 1, folder.verify(1))
    raw = torch.cat([rule.v.tensor for _, rule in slices if rule.v is not None])
    assert torch.equal(start.tensors(OPTIMIZER)["momentum"], raw)
    assert WEIGHTS not in start.tensors(OPTIMIZER)
