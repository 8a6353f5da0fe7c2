"""Whole runs of one worker of two ranks, which are threads: its model ends as that of a worker of one process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from paceline.core.errors import ConfigError, PeerLost
from paceline.core.scheme import make
from paceline.engine.optim.recipe import recipe_of
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.who_updates import fitted
from paceline.runtime.worker.loop.progress import ResumedProgress
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.ranks.first_rank import FirstRankPace, telling
from paceline.runtime.worker.ranks.local_group import LocalGroup
from paceline.runtime.worker.ranks.other_rank import OtherRankPace
from paceline.runtime.worker.single_process import servers_needed, sit_alone
from tests.runtime.own_loops import toy_data, toy_model
from tests.runtime.worker.ranks.rank_threads import DistributedDataParallel, on_ranks, ranks_of

Loop = Callable[[Any, nn.Module], Any]
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.5)


def prepared(
    scheme: str, optimizer: torch.optim.Optimizer, clip: float, parameters: dict[str, Any]
) -> tuple[Recipe, Any, Any]:
    made = make(scheme, parameters)
    how = dataclasses.replace(recipe_of(optimizer), clip_norm=clip)
    servers = servers_needed(made)
    recipe = fitted(Recipe(scheme=scheme, parameters=made.parameters(), optimizer=how), servers)
    spec, session = sit_alone(made, device="cpu", servers=servers)
    return recipe, spec, session


def on_one(scheme: str, loop: Loop, make_optimizer: MakeOptimizer = sgd, clip: float = 0.0, **parameters: Any) -> Any:
    """What the loop returns in a worker of one process."""
    model = toy_model()
    optimizer = make_optimizer(model.parameters())
    recipe, spec, session = prepared(scheme, optimizer, clip, parameters)
    with Pace(model, recipe, spec.overlapping(False), session, optimizer=optimizer) as pace:
        return loop(pace, model)


def on_two(
    scheme: str,
    loop: Loop,
    make_optimizer: MakeOptimizer = sgd,
    clip: float = 0.0,
    places: tuple[int, ...] = (0, 1),
    **parameters: Any,
) -> list[Any]:
    """What it returns on each rank of a worker of two."""

    def work(link: LocalGroup) -> Any:
        model = DistributedDataParallel(toy_model(), link)
        ranks = ranks_of(link, model, make_optimizer(model.parameters()), places)
        if link.rank:
            with OtherRankPace(ranks) as other:
                return loop(other, model)
        with telling(link):
            recipe, spec, session = prepared(scheme, ranks.parts.optimizer, clip, parameters)
            whole = ranks.whole()
            first = FirstRankPace(ranks, whole, recipe, spec.overlapping(False), session, behind=ResumedProgress())
        with first:
            return loop(first, model)

    return on_ranks(2, work)


def train(pace: Any, model: nn.Module) -> list[float]:
    """Trains for two epochs of batches of 10; returns the final weights."""
    for x, y in pace.batches(toy_data(), batch_size=10, epochs=2):
        backward(model, x, y)
        pace.step()
    pace.close()
    return weights(model)


def backward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    nn.functional.cross_entropy(model(x), y).backward()
    if isinstance(model, DistributedDataParallel):
        model.average()


def weights(model: nn.Module) -> list[float]:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()


SCHEMES: dict[str, dict[str, Any]] = {
    "bsp": {},
    "asp": {},
    "diloco": {"h": 3},
    "localsgd": {"tau": 2},
    "esync": {},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_ranks_train_what_one_process_trains(scheme: str) -> None:
    alone = on_one(scheme, train, **SCHEMES[scheme])
    first, other = on_two(scheme, train, **SCHEMES[scheme])
    assert first == other
    assert first == pytest.approx(alone, abs=1e-5)


def test_an_adaptive_optimizer_makes_its_local_steps_on_every_rank() -> None:
    def adam(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)

    first, other = on_two("diloco", train, adam, h=3, memory="reset")
    assert first == other
    assert first == pytest.approx(on_one("diloco", train, adam, h=3, memory="reset"), abs=1e-5)


def test_a_gradient_is_clipped_as_in_one_process() -> None:
    found = on_two("diloco", train, clip=0.05, h=3)
    assert found[0] == pytest.approx(on_one("diloco", train, clip=0.05, h=3), abs=1e-5)


def test_ranks_in_one_place_get_the_same_batches() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        seen = []
        for x, y in pace.batches(toy_data(), batch_size=10, epochs=1):
            seen.append(x.sum().item())
            backward(model, x, y)
            pace.step()
        return seen, pace.total_samples, pace.steps

    one, other = on_two("bsp", loop, places=(0, 0))
    assert one == other
    assert one[1:] == (90, 9)


def test_what_the_loop_asks_is_the_same_on_all_ranks() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        asked = []
        for x, y in pace.batches(toy_data(), batch_size=10, epochs=1):
            backward(model, x, y)
            pace.step()
            asked.append((pace.over, pace.total_samples, pace.steps, pace.batch_size, pace.at_exchange))
        return asked

    one, other = on_two("diloco", loop, h=2)
    assert one == other
    assert [total for _, total, *_ in one] == [10 * n for n in range(1, 10)]
    assert [at for *_, at in one] == [False, True] * 4 + [False]


def test_a_loader_gives_each_rank_its_part_of_whatever_collate_makes() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        loader = pace.loader(toy_data(), 30, epochs=1, collate_fn=len)
        assert len(loader) == 3
        lengths = []
        for length in loader:
            backward(model, *toy_data()[:length])
            pace.step()
            lengths.append(length)
        return lengths, pace.total_samples

    assert on_two("bsp", loop) == [([15] * 3, 90)] * 2


@pytest.mark.parametrize("given", [True, False], ids=["pace.step(n)", "pace.step()"])
def test_a_data_loader_of_ones_own_reads_the_ranks_part_and_all_ranks_samples_count(given: bool) -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        numbers = []
        for (x, y), n in DataLoader(pace.shard([*zip(toy_data(), range(90), strict=True)]), batch_size=9):
            numbers += n.tolist()
            backward(model, x, y)
            pace.step(*[len(x)] if given else [])
        return numbers, pace.total_samples

    (one, total), (other, _) = on_two("bsp", loop)
    assert total == 90
    assert (one, other) == ([*range(0, 90, 2)], [*range(1, 90, 2)])


def test_ranks_in_one_place_call_the_model_with_the_same_samples() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        for x, y in DataLoader(toy_data(), batch_size=9):
            backward(model, x, y)
            pace.step()
        return pace.total_samples

    assert on_two("bsp", loop, places=(0, 0)) == [90, 90]


def test_all_ranks_see_the_shared_model_and_their_own_again() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        found = []
        for x, y in pace.batches(toy_data(), batch_size=10, epochs=1):
            backward(model, x, y)
            pace.step()
            own = weights(model)
            with pace.shared_model() as shared:
                found.append(weights(shared))
            assert weights(model) == own
        return found

    one, other = on_two("diloco", loop, h=4)
    assert one == other
    assert one[0] == one[2] != one[4], "between two exchanges the shared model stays"


def test_a_scheduler_of_all_samples_makes_the_same_steps_on_all_ranks() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        scheduler = pace.scheduler(torch.optim.lr_scheduler.ExponentialLR(pace.optimizer, 0.5), every=20)
        rates = []
        for x, y in pace.batches(toy_data(), batch_size=10, epochs=1):
            backward(model, x, y)
            pace.step()
            rates.append(scheduler.get_last_lr()[0])
        return rates

    one, other = on_two("diloco", loop, h=4)
    assert one == other
    assert one[:4] == [0.2, 0.2, 0.1, 0.1]


def test_any_rank_may_ask_that_the_run_ends() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        for x, y in pace.batches(toy_data(), batch_size=10, epochs=None):
            if pace.steps == 3 and pace.local_rank == 1:
                pace.stop()
            backward(model, x, y)
            pace.step()
        return pace.steps, pace.over

    assert on_two("bsp", loop) == [(3, True)] * 2


def test_there_is_no_state_of_a_part() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        for ask in (pace.state_dict, lambda: pace.load_state_dict({})):
            with pytest.raises(ConfigError, match="use `paceline launch --checkpoint-every"):
                ask()

    on_two("bsp", loop)


def test_after_close_no_rank_has_connections_or_threads_left_and_a_step_does_nothing() -> None:
    """Threads of a process group that outlive the interpreter may abort the process."""

    def loop(pace: Any, model: nn.Module) -> tuple[Any, ...]:
        final = train(pace, model)
        steps = pace.steps
        x, y = toy_data()[:10]
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step()
        assert list(pace.batches(toy_data(), batch_size=10)) == []
        return pace._ranks.link._carrier, pace.steps - steps, weights(model) == final

    assert on_two("asp", loop) == [(None, 0, True)] * 2


def test_an_error_of_the_first_rank_ends_the_others_with_the_same_cause() -> None:
    def loop(pace: Any, model: nn.Module) -> Any:
        if pace.local_rank:
            with pytest.raises(PeerLost, match="the first rank of this worker has failed: .*out of luck"):
                pace.step()
            return
        with pytest.raises(RuntimeError), telling(pace._link):
            raise RuntimeError("out of luck")

    on_two("bsp", loop_without_close(loop))


def loop_without_close(loop: Loop) -> Loop:
    """`loop`, and then no part in the run any more."""

    def run(pace: Any, model: nn.Module) -> Any:
        found = loop(pace, model)
        pace.abandon("the test is over")
        return found

    return run


@pytest.mark.parametrize("kind", [FirstRankPace, OtherRankPace])
def test_ranks_share_no_values_and_the_line_says_what_to_do(kind: Any) -> None:
    for call in (lambda: kind.share(None, "it", 1), lambda: kind.shared(None, "it"), lambda: kind.plateau(None, None)):
        with pytest.raises(ConfigError, match="measure the same on all ranks and workers, and let each step"):
            call()
