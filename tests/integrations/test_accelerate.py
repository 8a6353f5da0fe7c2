"""Accelerate: one worker trains what it trains alone, with accumulation and clipping; what `prepare` refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from paceline.core.errors import ConfigError
from tests.integrations.toys import assert_same, loader, network

pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'paceline[integrations]'")
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

from paceline.integrations.accelerate import PacelineAccelerator

pytestmark = [pytest.mark.usefixtures("alone", "fresh"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def fresh() -> Iterator[None]:
    """Accelerate keeps its state for the life of a process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def trained(accelerator: Accelerator, *, steps: int) -> nn.Module:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, steps, 0.5)
    model, optimizer, batches, scheduler = accelerator.prepare(model, optimizer, loader(samples=192), scheduler)
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    accelerator.end_training()
    return model


@pytest.mark.parametrize("accumulation", [1, 2])
def test_one_worker_trains_what_accelerate_trains_alone(accumulation: int) -> None:
    alone = trained(Accelerator(cpu=True, gradient_accumulation_steps=accumulation), steps=1000)
    shared = trained(PacelineAccelerator(cpu=True, gradient_accumulation_steps=accumulation, scheme="bsp"), steps=1000)
    assert_same(alone, shared)


@pytest.mark.parametrize("by_epoch", [False, True])
def test_a_scheduler_by_steps_and_one_by_epochs_make_the_steps_that_accelerate_makes(by_epoch: bool) -> None:
    def rates(accelerator: Accelerator) -> list[float]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        made: Any = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=21)
        made = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if by_epoch else made
        model, optimizer, batches, scheduler = accelerator.prepare(model, optimizer, loader(shuffle=True), made)
        seen = []
        for _ in range(3):
            for x, y in batches:
                accelerator.backward(nn.functional.cross_entropy(model(x), y))
                optimizer.step()
                if not by_epoch:
                    scheduler.step()
                optimizer.zero_grad()
                seen.append(optimizer.param_groups[0]["lr"])
            if by_epoch:
                scheduler.step()
        accelerator.end_training()
        return [*seen, optimizer.param_groups[0]["lr"]]

    assert rates(PacelineAccelerator(cpu=True, scheme="bsp")) == rates(Accelerator(cpu=True))


def test_a_shuffled_loader_is_shared_and_each_sample_comes_once() -> None:
    accelerator = PacelineAccelerator(cpu=True, scheme="bsp")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader(shuffle=True))
    samples = 0
    for x, y in batches:
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        samples += len(x)
    accelerator.end_training()
    assert samples == 200
    assert accelerator.pace.steps == len(batches)


def test_a_cell_that_was_interrupted_prepares_again_with_what_it_has() -> None:
    accelerator = PacelineAccelerator(cpu=True, scheme="bsp")
    model = network()
    optimizer, batches = torch.optim.SGD(model.parameters(), lr=0.1), loader(shuffle=True)
    samples = 0
    for interrupted in (True, False):
        model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
        for x, y in batches:
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            samples += len(x)
            if interrupted:
                break
    accelerator.end_training()
    assert samples == 32 + 200


@pytest.mark.parametrize(
    "given",
    [
        lambda model, optimizer: (optimizer,),
        lambda model, optimizer: (model, optimizer, torch.optim.SGD(model.parameters(), lr=1.0)),
    ],
    ids=["an optimizer without its model", "two optimizers"],
)
def test_prepare_takes_one_model_with_its_optimizer(given: Any) -> None:
    model = network()
    with pytest.raises(ConfigError, match="give one model and its optimizer in one call"):
        PacelineAccelerator(cpu=True).prepare(*given(model, torch.optim.SGD(model.parameters(), lr=0.1)))


def test_worker_0_is_the_main_process_and_joins_in_prepare() -> None:
    accelerator = PacelineAccelerator(cpu=True)
    assert accelerator.is_main_process
    with pytest.raises(ConfigError, match=r"call prepare\(model, optimizer, \.\.\.\) first"):
        _ = accelerator.pace


def test_a_state_that_the_script_does_not_load_is_not_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    """Accelerate loads an optimizer's own state into it where it places that on a device."""
    trained(PacelineAccelerator(cpu=True, scheme="asp"), steps=1000)
    assert "load_state_dict" not in capsys.readouterr().err


def test_a_group_that_is_added_later_is_refused_at_its_first_step() -> None:
    accelerator, model = PacelineAccelerator(scheme="bsp", cpu=True), network()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
    for number, (x, y) in enumerate(batches):
        if number == 2:
            optimizer.add_param_group({"params": list(model[0].parameters())})
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        if number == 2:
            with pytest.raises(ConfigError, match=r"paceline\.join: 0\.bias, 0\.weight; this run does not train that"):
                optimizer.step()
            break
        optimizer.step()
        optimizer.zero_grad()
    accelerator.end_training()


class Counted(IterableDataset[Any]):
    """A stream of 96 samples."""

    def __iter__(self) -> Iterator[Any]:
        yield from ((x, 0) for x in torch.randn(96, 64))


def test_a_stream_is_shared_while_the_model_trains_and_whole_when_it_is_measured() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accelerator = PacelineAccelerator(cpu=True, scheme="bsp")
    model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(Counted(), 32))
    handed_out = []
    for x, y in batches:
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        handed_out.append(accelerator.pace._worker.feed.holds)
    model.eval()
    for _ in batches:
        handed_out.append(accelerator.pace._worker.feed.holds)
    assert handed_out == [True] * 3 + [False] * 3
    accelerator.end_training()


def test_the_first_batches_of_a_pass_are_left_out() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accelerator = PacelineAccelerator(cpu=True, scheme="bsp")
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader(samples=192, shuffle=True))
    lengths = []
    for x, y in accelerator.skip_first_batches(batches, 2):
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        lengths.append(len(x))
    assert sum(lengths) == accelerator.pace.total_samples == 192 - 2 * len(x)
    accelerator.end_training()
