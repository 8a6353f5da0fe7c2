"""Whatever the optimizer is, a run ends as the plain loop ends, and two workers as one process with both batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.vectors.flat import Flat
from paceline.runtime.worker.pace import Pace
from tests.runtime import own_optimizers
from tests.runtime.own_loops import plain_steps, run_loops, toy_data, toy_model
from tests.runtime.own_optimizers import OF_TORCH, Make
from tests.runtime.runs.test_trained_and_rest import (
    BATCH,
    assert_same,
    held,
    model_for,
    plain,
    shares_of,
    union_of_batches,
)
from tests.runtime.schedules import assert_followed

OWN: dict[str, Make] = {"lion": own_optimizers.Lion, "muon-like": own_optimizers.MuonLike}


def loop(pace: Pace, model: nn.Module) -> None:
    plain_steps(pace, model, toy_data(), batch_size=BATCH, epochs=2)


def run(out: Path, scheme: str, make: Make, **more: Any) -> dict[int, nn.Module]:
    _, models = run_loops(out, scheme, loop, make_model=model_for, optimizer=make, held=held, **more)
    return models


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("make", OF_TORCH.values(), ids=OF_TORCH)
def test_servers_make_the_steps_of_any_optimizer_of_torch(make: Make, servers: int, tmp_path: Path) -> None:
    cluster = {"slice_mb": 0.0001}  # whole tensors all the same
    models = run(tmp_path, "asp", make, workers=1, servers=servers, cluster=cluster)
    assert_same(models[0], plain(make))


@pytest.mark.parametrize(("scheme", "servers"), [("bsp", 0), ("bsp", 2), ("esync", 1), ("localsgd", 0), ("sgp", 0)])
@pytest.mark.parametrize("make", [*OWN.values(), OF_TORCH["adafactor"]], ids=[*OWN, "adafactor"])
def test_where_workers_make_the_steps_the_optimizer_itself_is_called(
    make: Make, scheme: str, servers: int, tmp_path: Path
) -> None:
    assert_same(run(tmp_path, scheme, make, workers=1, servers=servers)[0], plain(make))


@pytest.mark.parametrize("servers", [0, 2])
@pytest.mark.parametrize("make", [*OWN.values(), OF_TORCH["adadelta"]], ids=[*OWN, "adadelta"])
def test_two_workers_train_what_one_process_with_both_batches_would(make: Make, servers: int, tmp_path: Path) -> None:
    """On servers bsp lets workers make the updates of an optimizer that is not torch's."""
    for model in run(tmp_path, "bsp", make, workers=2, servers=servers).values():
        assert_same(model, union_of_batches(make, 2), buffers=False)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("make", [*OWN.values(), OF_TORCH["adadelta"]], ids=[*OWN, "adadelta"])
def test_alone_under_bsp_it_is_the_plain_loop_bit_for_bit(make: Make) -> None:
    model, wanted = model_for(), plain(make)
    with paceline.join(model, make(held(model)), scheme="bsp") as pace:
        loop(pace, model)
    for name, value in wanted.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


class Halving:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._groups = optimizer.param_groups

    def step(self) -> None:
        self._groups[0]["lr"] *= 0.8
        self._groups[-1]["alpha"] *= 0.99


def test_what_a_scheduler_changes_in_them_is_followed(tmp_path: Path) -> None:
    assert_followed(Halving, OF_TORCH["rmsprop in groups"], "asp", 2, tmp_path)


# ---- clipping ----------------------------------------------------------------------------------------------------
CLIP = 0.05


def clipped_union(workers: int) -> nn.Module:
    model = model_for()
    optimizer = OF_TORCH["rmsprop in groups"](held(model))
    for of_each in zip(*shares_of(workers, 2), strict=True):
        optimizer.zero_grad()
        samples = sum(len(y) for _, y in of_each)
        for x, y in of_each:
            (nn.functional.cross_entropy(model(x), y, reduction="sum") / samples).backward()
        nn.utils.clip_grad_norm_(held(model), CLIP)
        optimizer.step()
    return model


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_clip_norm_shortens_the_mean_of_all_workers(servers: int, tmp_path: Path) -> None:
    models = run(tmp_path, "bsp", OF_TORCH["rmsprop in groups"], workers=2, servers=servers, clip_norm=CLIP)
    for model in models.values():
        assert_same(model, clipped_union(2), buffers=False)


@pytest.mark.parametrize("scheme", ["asp", "esync"])
def test_with_one_worker_it_shortens_what_the_plain_loop_does(scheme: str, tmp_path: Path) -> None:
    models = run(tmp_path, scheme, OF_TORCH["rmsprop in groups"], workers=1, clip_norm=CLIP)
    assert_same(models[0], clipped_union(1))


def test_a_function_that_makes_other_groups_of_a_part_of_the_model_ends_the_run_with_the_reason() -> None:
    model = toy_model()
    optimizer = own_optimizers.one_group_less(list(model.named_parameters()))
    path = "tests.runtime.own_optimizers:one_group_less"
    rule = make_rule(recipe_of(optimizer, trained_of(model, optimizer), path))
    with pytest.raises(ConfigError, match="1 parameter groups of a server's tensors, and 2 of the whole model"):
        rule(Flat.copy_of(torch.zeros(30)), Flat.copy_of(torch.zeros(30)), 1)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("path", ["tests.runtime.own_optimizers:lion", "tests.runtime.own_optimizers:muon_like"])
def test_a_function_by_its_import_path_makes_the_optimizer_of_servers_too(path: str) -> None:
    """Also given as the function itself."""
    function = getattr(own_optimizers, path.partition(":")[2])
    wanted = toy_model()
    optimizer = function(list(wanted.named_parameters()))
    for x, y in shares_of(1, 2)[0]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(wanted(x), y).backward()
        optimizer.step()
    for given in (path, function):
        model = toy_model()
        with paceline.join(model, given, scheme="asp") as pace:
            loop(pace, model)
        for mine, other in zip(model.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
