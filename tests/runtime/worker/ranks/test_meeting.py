from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import parallel

from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.engine.optim.recipe import recipe_of
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.ranks.meeting import check_asked, check_recipe, meet
from tests.runtime.worker.ranks.one_rank import process_group_alone
from tests.runtime.worker.ranks.rank_threads import DistributedDataParallel, on_ranks, ranks_of


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Any]:
    """A process group of this process alone."""
    with process_group_alone(tmp_path) as group:
        yield group


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def recipe(scheme: str, optimizer: torch.optim.Optimizer, **parameters: Any) -> Recipe:
    made = make(scheme, parameters)
    return Recipe(scheme=scheme, parameters=made.parameters(), optimizer=recipe_of(optimizer))


def test_a_rank_alone_has_the_whole_batch(world: Any) -> None:
    model = parallel.DistributedDataParallel(nn.Linear(2, 2))
    ranks = meet(model, sgd(model), world, None, 5.0)
    assert ranks.is_first
    assert ranks.place == (0, 1)
    assert ranks.whole().weights().value().tolist() == torch.cat([p.reshape(-1) for p in model.parameters()]).tolist()


def test_a_model_of_fully_shard_meets_too(world: Any) -> None:
    model = nn.Linear(2, 2)
    fully_shard(model)
    assert len(meet(model, sgd(model), world, None, 5.0).whole()) == 6


def test_what_is_wrong_with_the_model_is_said_in_one_line(world: Any) -> None:
    plain = nn.Linear(2, 2)
    for model, optimizer, match in (
        (plain, sgd(plain), "nothing averages the gradients"),
        ({"D": plain}, sgd(plain), "takes one model"),
        (parallel.DistributedDataParallel(plain), torch.optim.SGD, "takes an optimizer itself"),
    ):
        with pytest.raises(ConfigError, match=match):
            meet(model, optimizer, world, None, 5.0)


def test_a_mesh_of_several_dimensions_needs_the_ranks_that_have_samples_of_their_own(world: Any) -> None:
    mesh = dist.device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "dp"))
    model = nn.Linear(2, 2)
    fully_shard(model, mesh=mesh)
    with pytest.raises(ConfigError, match=r"sharded in several dimensions; .* data_group=mesh"):
        meet(model, sgd(model), world, None, 5.0)
    assert meet(model, sgd(model), world, mesh["dp"], 5.0).place == (0, 1)


def test_samples_of_ranks_in_one_place_count_once() -> None:
    def work(link: Any) -> Any:
        model = DistributedDataParallel(nn.Linear(2, 2), link)
        ranks = ranks_of(link, model, sgd(model), (0, 0))
        other = ranks_of(link, model, sgd(model), (0, 1))
        return ranks.samples_of([8, 8]), other.samples_of([8, 7]), other.samples_of([-1, -1]), other.place

    assert on_ranks(2, work) == [(8, 15, None, (0, 2)), (8, 15, None, (1, 2))]


@pytest.mark.parametrize("name", ["lazy", "overlap", "evaluate", "state", "constraint"])
def test_what_join_does_not_take_together_with_a_group_is_refused(name: str) -> None:
    nothing: dict[str, Any] = dict.fromkeys(("lazy", "overlap", "evaluate", "state", "constraint"))
    check_asked(**nothing)
    with pytest.raises(ConfigError, match=rf"paceline.join\(group=...\) has no {name}=: \w+"):
        check_asked(**{**nothing, name: {"x": 1}})


def test_a_mean_of_optimizers_states_is_refused() -> None:
    optimizer = sgd(nn.Linear(2, 2))
    check_recipe(recipe("localsgd", optimizer, memory="reset"), 1)
    with pytest.raises(ConfigError, match=r"--localsgd.memory average: .* give memory='keep' or 'reset'"):
        check_recipe(recipe("localsgd", optimizer, memory="average"), 1)


def test_an_optimizer_that_only_the_ranks_can_step_needs_a_scheme_that_trains_locally() -> None:
    class Own(torch.optim.SGD):
        """Is known to nobody else."""

    own = Own(nn.Linear(2, 2).parameters(), lr=0.1)
    check_recipe(recipe("diloco", own), 0)
    with pytest.raises(ConfigError, match="bsp without servers updates the whole model on the first rank, and .*Own"):
        check_recipe(recipe("bsp", own), 0)
