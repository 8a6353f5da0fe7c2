"""`pace.state_dict()` and `join(state=...)`: a loop goes on from a file of its own, with what everybody remembers."""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.checkpoint.folder_store import CHECKPOINTS
from paceline.config import Config
from paceline.core.errors import ConfigError, PacelineError
from paceline.engine.data.partition_plan import epoch_order
from paceline.runtime.checkpointing.resume import open_at
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import MakeOptimizer, plain_sgd, run_loops, toy_data, toy_model

DATA, BATCH, EPOCHS = toy_data(), 9, 4
NUMBERED = torch.utils.data.TensorDataset(torch.arange(60.0)[:, None].expand(60, 6), torch.zeros(60).long())
States = dict[int, Any]


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adadelta(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(parameters, lr=0.5)


def through_a_file(state: Any) -> Any:
    """What a script gets that saves with `torch.save` and loads without trust."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def loop_of(epochs: int, states: States | None = None, ends: int | None = None) -> Callable[[Pace, nn.Module], None]:
    """A loop that asks for one epoch at a time, and saves after `ends` of them."""

    def loop(pace: Pace, model: nn.Module) -> None:
        for epoch in range(epochs):
            for x, y in pace.batches(DATA, BATCH, epochs=1):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()
            if states is not None and epoch + 1 == (ends or epochs):
                states[pace.rank] = through_a_file(pace.state_dict())

    return loop


def vector(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


RUNS: list[tuple[str, int, int, MakeOptimizer]] = [
    ("bsp", 1, 1, adam),
    ("bsp", 2, 1, adam),
    ("bsp", 2, 2, adadelta),
    ("bsp", 2, 0, momentum),
    ("bsp", 2, 1, plain_sgd),
    ("asp", 1, 2, adam),
    ("localsgd", 2, 1, adam),
    ("localsgd", 2, 0, momentum),
]


@pytest.mark.parametrize(("scheme", "workers", "servers", "optimizer"), RUNS)
def test_a_run_that_goes_on_from_a_state_is_one_that_was_never_interrupted_bit_for_bit(
    scheme: str, workers: int, servers: int, optimizer: MakeOptimizer, out: Path
) -> None:
    more: dict[str, Any] = {"workers": workers, "servers": servers, "optimizer": optimizer}
    more |= {"tau": 5} if scheme == "localsgd" else {}
    states: States = {}
    _, whole = run_loops(out / "whole", scheme, loop_of(2 * EPOCHS), **more)
    run_loops(out / "half", scheme, loop_of(EPOCHS, states), **more)
    summary, found = run_loops(out / "rest", scheme, loop_of(2 * EPOCHS), states=states, **more)
    assert torch.equal(vector(found[0]), vector(whole[0]))
    assert summary.samples == 2 * EPOCHS * len(DATA)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_loader_has_drawn_ahead_is_trained_by_a_run_that_goes_on_from_a_state(workers: int, out: Path) -> None:
    states: States = {}
    trained: Counter[int] = Counter()

    def loop_until(step: int) -> Callable[[Pace, nn.Module], None]:
        def loop(pace: Pace, model: nn.Module) -> None:
            for x, y in pace.loader(NUMBERED, 5, num_workers=1):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()
                trained.update(x[:, 0].int().tolist())
                if pace.steps == step:
                    states[pace.rank] = through_a_file(pace.state_dict())
                    return

        return loop

    more: dict[str, Any] = {"workers": workers, "optimizer": adam}
    run_loops(out / "half", "bsp", loop_until(2), **more)
    run_loops(out / "rest", "bsp", loop_until(0), states=dict(states), **more)
    assert trained == Counter(range(60))


def test_one_file_of_worker_0_will_do_for_all_where_servers_have_the_optimizer(out: Path) -> None:
    states: States = {}
    more: dict[str, Any] = {"workers": 2, "servers": 2, "optimizer": adam}
    _, whole = run_loops(out / "whole", "bsp", loop_of(2 * EPOCHS), **more)
    run_loops(out / "half", "bsp", loop_of(EPOCHS, states), **more)
    given = dict.fromkeys(range(2), states[0])
    summary, found = run_loops(out / "rest", "bsp", loop_of(2 * EPOCHS), states=given, **more)
    assert summary.samples == 2 * EPOCHS * len(DATA)
    assert torch.equal(vector(found[0]), vector(whole[0]))


@pytest.mark.parametrize("workers", [2, 3])
def test_samples_are_trained_once_where_workers_draw_them_also_with_more_workers(workers: int, out: Path) -> None:
    states: States = {}
    run_loops(out / "half", "asp", loop_of(EPOCHS, states), workers=2, optimizer=adam)
    seen: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, BATCH, epochs=2 * EPOCHS):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            seen.append(len(x))

    last = max(states.values(), key=lambda state: state["samples"])
    given = dict.fromkeys(range(workers), last)
    summary, _ = run_loops(out / "rest", "asp", loop, workers=workers, optimizer=adam, states=given)
    assert sum(seen) == 2 * EPOCHS * len(DATA) - last["samples"]
    assert 0 <= 2 * EPOCHS * len(DATA) - summary.samples < workers, "each has an even part of what is behind"


def test_files_of_unlike_moments_begin_with_worker_0s_model_and_its_counts(out: Path) -> None:
    """Worker 1 saves after worker 0 has trained on: what it had trained since is in no model, and is trained again."""
    states: States = {}
    saved = threading.Event()

    def save(pace: Pace, model: nn.Module) -> None:
        if pace.rank == 1:
            assert saved.wait(60.0)
        for step, (x, y) in enumerate(pace.batches(NUMBERED, 5, epochs=2)):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            if step == 3:
                states[pace.rank] = through_a_file(pace.state_dict())
                saved.set()
                return

    seen: list[int] = []

    def rest(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(NUMBERED, 5, epochs=2):
            seen.extend(x[:, 0].int().tolist())
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    run_loops(out / "half", "ssp", save, workers=2, staleness=9)
    assert [states[rank]["samples"] for rank in (0, 1)] == [20, 40]
    summary, _ = run_loops(out / "rest", "ssp", rest, workers=2, states=states, staleness=9)
    assert summary.samples == 2 * len(NUMBERED)
    assert len(seen) == 2 * len(NUMBERED) - 20
    order = epoch_order(len(NUMBERED), 0, 0)
    assert Counter(seen) + Counter(order[:20].tolist()) == Counter([*range(len(NUMBERED))] * 2)


def test_a_run_that_goes_on_from_a_state_keeps_a_checkpoint_of_all_samples(out: Path) -> None:
    states: States = {}
    run_loops(out / "half", "asp", loop_of(1, states), workers=2)
    given = dict.fromkeys(range(2), max(states.values(), key=lambda state: state["samples"]))
    run_loops(out / "rest", "asp", loop_of(2), workers=2, states=given, checkpoint={"every": 0.001})
    last = max((out / "rest" / CHECKPOINTS).iterdir())
    assert open_at(Config(), str(last)).samples == 2 * len(DATA)


def test_under_schemes_in_rounds_files_of_unlike_moments_are_refused(out: Path) -> None:
    early: States = {}
    late: States = {}
    run_loops(out / "early", "localsgd", loop_of(1, early), workers=2, tau=5)
    run_loops(out / "late", "localsgd", loop_of(2, late), workers=2, tau=5)
    with pytest.raises(PacelineError, match=r"worker 1 goes on after round 2 and worker 0 after round 1"):
        run_loops(out / "rest", "localsgd", loop_of(3), workers=2, tau=5, states={0: early[0], 1: late[1]})


# ---- alone -------------------------------------------------------------------------------------------------------
def alone(scheme: str, epochs: int, state: Any = None, **more: Any) -> tuple[nn.Module, Any]:
    """A script without a launcher."""
    torch.manual_seed(3)
    model = nn.Sequential(toy_model(), nn.Dropout(0.3), nn.Linear(2, 2))
    pace = paceline.join(model, adam(model.parameters()), scheme, state=state, **more)
    states: States = {}
    loop_of(epochs, states)(pace, model)
    pace.close()
    return model, states[0]


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "diloco"])
def test_a_script_that_is_alone_goes_on_bit_for_bit_dropout_and_all(scheme: str) -> None:
    more = {"h": 5} if scheme == "diloco" else {}
    whole, _ = alone(scheme, 2 * EPOCHS, **more)
    _, state = alone(scheme, EPOCHS, **more)
    found, last = alone(scheme, 2 * EPOCHS, state, **more)
    assert torch.equal(vector(found), vector(whole))
    assert last["samples"] == 2 * EPOCHS * len(DATA)


def test_masters_of_parameters_of_16_bits_are_kept() -> None:
    def trained(epochs: int, state: Any = None) -> tuple[nn.Module, Any]:
        model = toy_model().to(torch.bfloat16)
        pace = paceline.join(model, adam(model.parameters()), "asp", state=state)
        for x, y in pace.batches(DATA, BATCH, epochs=epochs):
            nn.functional.cross_entropy(model(x.to(torch.bfloat16)), y).backward()
            pace.step()
        state = through_a_file(pace.state_dict())
        pace.close()
        return model, state

    whole, _ = trained(4)
    found, _ = trained(4, trained(2)[1])
    assert torch.equal(vector(found), vector(whole))


# ---- what cannot be had ------------------------------------------------------------------------------------------
def test_a_state_in_the_middle_of_an_exchange_is_refused_and_the_loop_can_ask() -> None:
    model = toy_model()
    pace = paceline.join(model, plain_sgd(model.parameters()), "localsgd", tau=3)
    whole = []
    for x, y in pace.batches(DATA, BATCH):
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step()
        whole.append(pace.at_exchange)
        if not pace.at_exchange:
            with pytest.raises(ConfigError, match=r"middle of an exchange, [12] steps before its end"):
                pace.state_dict()
    assert whole[:6] == [False, False, True] * 2
    with pytest.raises(ConfigError, match=r"give the state to paceline\.join\(\.\.\., state=state\)"):
        pace.load_state_dict(pace.state_dict() if pace.at_exchange else {})
    pace.close()
    with pytest.raises(ConfigError, match=r"after pace\.close"):
        pace.state_dict()


def test_a_state_that_does_not_fit_is_refused_in_a_line_with_the_way_out() -> None:
    _, state = alone("asp", 1)
    with pytest.raises(ConfigError, match=r"no state of pace\.state_dict"):
        alone("asp", 1, {"a": 1})
    with pytest.raises(ConfigError, match="has no 'model'"):
        alone("asp", 1, {name: value for name, value in state.items() if name != "model"})
    with pytest.raises(ConfigError, match=r"with scheme 'asp', and this one has 'bsp'; for the weights alone"):
        alone("bsp", 1, state)
    model = nn.Linear(6, 2)
    with pytest.raises(ConfigError, match=r"has no weight, which the model has; make the model as"):
        paceline.join(model, adam(model.parameters()), "asp", state=state)


def test_under_local_schemes_each_worker_has_a_file_of_its_own(out: Path) -> None:
    states: States = {}
    run_loops(out / "half", "localsgd", loop_of(1, states), workers=2, optimizer=adam, tau=5)
    with pytest.raises(PacelineError, match="each worker saves a file of its own"):
        run_loops(
            out / "rest", "localsgd", loop_of(2), workers=2, optimizer=adam, tau=5, states={0: states[0], 1: states[0]}
        )


def test_where_each_worker_has_a_model_of_its_own_there_is_none(out: Path) -> None:
    with pytest.raises(PacelineError, match="each worker has a model of its own"):
        run_loops(out, "adpsgd", loop_of(1, {}), workers=2, servers=0)
