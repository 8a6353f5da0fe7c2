"""What a loop does beside `pace.step()`: each mistake is said once, and what is no mistake is not."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError
from paceline.core.trace import NO_STEPS, Decided
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps.loop_checks import BATCHES_WITHOUT_STEP_MAX, SKIPPED_MAX
from tests.runtime.own_loops import run_loops, toy_data, toy_model

pytestmark = pytest.mark.usefixtures("alone")

SCHEMES = ["bsp", "asp", "esync", "diloco"]


def joined(scheme: str, model: nn.Module, **options: Any) -> tuple[Pace, torch.optim.Optimizer]:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    return paceline.join(model, optimizer, scheme=scheme, **options), optimizer


def batches(pace: Pace, count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for at, batch in enumerate(pace.batches(toy_data(), 8, epochs=None)):
        if at == count:
            return
        yield batch


def backward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    nn.functional.cross_entropy(model(x), y).backward()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_ordinary_loop_hears_nothing(scheme: str) -> None:
    """Warnings are errors in these tests. Gradients are summed up over some batches, and cleared by hand."""
    model = toy_model()
    pace, optimizer = joined(scheme, model)
    with pace:
        for at, (x, y) in enumerate(batches(pace, 30)):
            if at % 5 == 0:
                model.zero_grad()
                optimizer.zero_grad(set_to_none=at % 2 == 0)
            backward(model, x, y)
            if at % 5 == 4:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                pace.step()
    assert pace.steps == 6
    optimizer.step()  # the run is over


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_of_the_optimizer_beside_it_is_an_error(scheme: str, scaled: bool) -> None:
    model = toy_model()
    pace, optimizer = joined(scheme, model)
    scaler = torch.amp.GradScaler("cpu")
    with pace:
        for x, y in batches(pace, 3):
            backward(model, x, y)
            pace.step()
        x, y = toy_data().tensors
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        with pytest.raises(ConfigError, match=r"pace\.step\(\) would update the model twice: leave it") as error:
            scaler.step(optimizer) if scaled else optimizer.step()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_checkpoint_loaded_after_join_is_an_error_before_anything_is_trained(scheme: str) -> None:
    model, checkpoint = toy_model(), {name: t + 1 for name, t in toy_model().state_dict().items()}
    pace, _ = joined(scheme, model)
    model.load_state_dict(checkpoint)
    x, y = toy_data().tensors
    backward(model, x, y)
    with pytest.raises(ConfigError, match=r"load a checkpoint before paceline\.join") as error:
        pace.step()
    assert "\n" not in str(error.value)
    pace.abandon("as the error would")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_optimizer_that_steps_in_backward_is_an_error_that_names_it(scheme: str) -> None:
    """The recipe that saves the memory of gradients: each parameter has an optimizer, which steps and clears."""
    model = toy_model()
    pace, _ = joined(scheme, model)
    own = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(p: torch.Tensor) -> None:
        own[p].step()
        own[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    x, y = toy_data().tensors
    backward(model, x, y)
    with pytest.raises(ConfigError, match=r"steps in hooks of backward.*pace\.step\(\) makes the step") as error:
        pace.step()
    assert "\n" not in str(error.value)
    pace.abandon("as the error would")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_that_is_loaded_before_is_what_training_begins_with(scheme: str) -> None:
    model, checkpoint = toy_model(), {name: t + 1 for name, t in toy_model().state_dict().items()}
    model.load_state_dict(checkpoint)
    pace, _ = joined(scheme, model)
    assert all(torch.equal(t, checkpoint[name]) for name, t in model.state_dict().items())
    pace.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("behind_torchs_back", [False, True])
def test_weights_changed_later_are_an_error_that_names_the_way(scheme: str, behind_torchs_back: bool) -> None:
    """Weight clipping, say: lost where servers have the model. torch counts no write to `p.data`."""
    model = toy_model()
    pace, _ = joined(scheme, model)
    for at, (x, y) in enumerate(batches(pace, 4)):
        if at and behind_torchs_back:
            model[0].weight.data.clamp_(-0.1, 0.1)
        elif at:
            with torch.no_grad():
                model[0].bias.clamp_(-0.01, 0.01)
        backward(model, x, y)
        if at:
            with pytest.raises(ConfigError, match=r"changed outside pace\.step\(\).*constraint=.*join again") as error:
                pace.step()
            break
        pace.step()
    assert "\n" not in str(error.value)
    pace.abandon("as the error would")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_way_on_from_other_weights_is_to_join_again(scheme: str) -> None:
    model = toy_model()
    pace, optimizer = joined(scheme, model)
    backward(model, *toy_data().tensors)
    pace.step(len(toy_data()))
    pace.close()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    pace = paceline.join(model, optimizer, scheme=scheme)
    assert not any(p.any() for p in model.parameters())
    backward(model, *toy_data().tensors)
    pace.step(len(toy_data()))
    pace.close()


@pytest.mark.parametrize("at", [0, 1])
def test_weights_that_are_replaced_by_the_same_ones_are_not(at: int) -> None:
    """Warnings are errors in these tests. A checkpoint that is loaded twice, an average that is looked at."""
    model = toy_model()
    pace, _ = joined("asp", model)
    with pace:
        for number, (x, y) in enumerate(batches(pace, 3)):
            backward(model, x, y)
            if number == at:
                before = {name: t.clone() for name, t in model.state_dict().items()}
                with torch.no_grad():
                    for p in model.parameters():
                        p.mul_(0.5)
                model.load_state_dict(before)
            pace.step()


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("own_gradients", [True, False])
def test_gradients_that_are_cleared_between_backward_and_step_are_warned_of_once(
    to_none: bool, own_gradients: bool
) -> None:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [p.clone() for p in model.parameters()]
    pace = paceline.join(model, optimizer, scheme="asp")
    what = "found no gradient: call backward" if to_none else "every number is zero: nothing is trained"
    with pace, pytest.warns(UserWarning, match=what) as said:
        for x, y in batches(pace, 5):
            if own_gradients:
                optimizer.zero_grad()
            backward(model, x, y)
            optimizer.zero_grad(set_to_none=to_none)
            pace.step()
    assert len(said) == 1
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_gradients_that_are_cleared_before_backward_are_not() -> None:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pace = paceline.join(model, optimizer, scheme="asp")
    with pace, warnings.catch_warnings():
        warnings.simplefilter("error")
        for to_none, (x, y) in zip((True, False, True), batches(pace, 3), strict=True):
            optimizer.zero_grad(set_to_none=to_none)
            backward(model, x, y)
            pace.step()


def test_a_step_without_a_gradient_is_warned_of_and_changes_nothing() -> None:
    model = toy_model()
    before = [p.clone() for p in model.parameters()]
    pace = paceline.join(model, torch.optim.AdamW(model.parameters(), weight_decay=0.5), scheme="asp")
    with pace, pytest.warns(UserWarning, match=r"found no gradient: call backward\(\) before it"):
        for _ in batches(pace, 3):
            pace.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_batches_without_a_step_are_warned_of() -> None:
    model = toy_model()
    pace, _ = joined("asp", model)
    with pace, pytest.warns(UserWarning, match=r"100 batches without pace\.step\(\)") as said:
        for x, y in batches(pace, 3 * BATCHES_WITHOUT_STEP_MAX):
            backward(model, x, y)
    assert len(said) == 1


def test_so_is_an_epoch_without_one() -> None:
    model = toy_model()
    pace, _ = joined("asp", model)
    with pace, pytest.warns(UserWarning, match=r"12 batches without pace\.step\(\)") as said:
        for _ in range(3):
            for x, y in pace.batches(toy_data(), 8):
                backward(model, x, y)
    assert len(said) == 1


@pytest.mark.parametrize("of_own", [False, True])
def test_so_is_a_scaler_that_skips_every_step(of_own: bool) -> None:
    """Also where batches come from a loader of one's own, so that nobody counts them."""
    model = toy_model()
    pace, _ = joined("asp", model)
    scaler = torch.amp.GradScaler("cpu")
    own = (tuple(toy_data().tensors) for _ in range(2 * SKIPPED_MAX))
    why = f"a gradient scaler has skipped the last {SKIPPED_MAX} steps"
    with pace, pytest.warns(UserWarning, match=why) as said:
        for x, y in own if of_own else batches(pace, 2 * SKIPPED_MAX):
            scaler.scale(nn.functional.cross_entropy(model(x), y) * torch.nan).backward()
            scaler.step(pace.optimizer)
            scaler.update()
    assert len(said) == 1


def test_so_is_a_loop_of_ones_own_that_ends_without_one() -> None:
    model = toy_model()
    pace, _ = joined("asp", model)
    backward(model, *toy_data().tensors)
    with pytest.warns(UserWarning, match=r"a backward pass without pace\.step\(\)"):
        pace.close()


def test_the_run_learns_of_a_worker_that_makes_no_steps(out: Path) -> None:
    """The other one trains on alone under `bsp`; so somebody has to name the one that does not."""

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 9, partition="uniform"):
            backward(model, x, y)
            if pace.rank == 0:
                pace.step()

    with pytest.warns(UserWarning, match=r"5 batches without pace\.step\(\)"):
        run_loops(out, "bsp", loop, workers=2)
    found = [r for r in read_trace(out / "trace.jsonl") if isinstance(r, Decided) and r.verdict == NO_STEPS]
    assert [(record.party, record.rank, record.reason[:28]) for record in found] == [
        ("worker 1", 1, "5 batches without pace.step("),
    ]


class Growing(nn.Module):
    """A head that is trained, and parts that are not, or not yet there."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.outside = nn.Linear(6, 2).requires_grad_(False), nn.Linear(6, 2)
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(x) + self.base(x) + self.outside(x)
        return found + self.late(x) if hasattr(self, "late") else found


def test_what_is_added_or_unfrozen_after_join_and_in_no_optimizer_is_named() -> None:
    """A plain loop would not train it, either."""
    model = Growing()
    pace = paceline.join(model, torch.optim.SGD(model.head.parameters(), lr=0.1), scheme="asp")
    with pace:
        for at, (x, y) in enumerate(batches(pace, 5)):
            if at == 2:
                model.late = nn.Linear(6, 2)
                model.base.weight.requires_grad_(True)
            backward(model, x, y)
            if at == 3:
                with pytest.warns(UserWarning, match=r"at paceline\.join: base\.weight, late\.weight, late") as said:
                    pace.step()
                assert "late.bias; do that before" in str(said[0].message)
            else:
                pace.step()


def add_group(model: Growing, optimizer: torch.optim.Optimizer) -> None:
    optimizer.add_param_group({"params": model.outside.bias})


def unfreeze(model: Growing, _optimizer: torch.optim.Optimizer) -> None:
    model.base.bias.requires_grad_(True)


@pytest.mark.parametrize(("change", "name"), [(add_group, r"outside\.bias"), (unfreeze, r"base\.bias")])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_a_plain_loop_would_train_from_now_on_is_an_error_at_the_next_step(
    scheme: str, change: Callable[[Growing, torch.optim.Optimizer], None], name: str
) -> None:
    model = Growing()
    optimizer = torch.optim.SGD([*model.head.parameters(), *model.base.parameters()], lr=0.1)
    pace = paceline.join(model, optimizer, scheme=scheme)
    with pace:
        for at, (x, y) in enumerate(batches(pace, 6)):
            if at == 4:
                change(model, pace.optimizer)
            backward(model, x, y)
            if at == 4:
                with pytest.raises(ConfigError, match=rf"after paceline\.join: {name}; this run does not train that"):
                    pace.step()
                break
            pace.step()
    pace = paceline.join(model, optimizer, scheme=scheme)  # the way out
    before = [p.detach().clone() for p in model.parameters()]
    backward(model, *toy_data().tensors)
    pace.step(len(toy_data()))
    pace.close()
    moved = [n for (n, p), old in zip(model.named_parameters(), before, strict=True) if not torch.equal(p, old)]
    assert re.search(name, " ".join(moved))


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_what_is_unfrozen_at_join_and_frozen_after_it_is_trained_once_it_is_unfrozen(scheme: str) -> None:
    model, plain = toy_model(), toy_model()
    plain.load_state_dict(model.state_dict())
    x, y = toy_data().tensors
    optimizers = [torch.optim.AdamW(m.parameters(), 0.05, weight_decay=0.3) for m in (model, plain)]
    pace = paceline.join(model, optimizers[0], scheme=scheme)
    for at in range(6):
        for m in (model, plain):
            m[0].requires_grad_(at >= 3)
            backward(m, x, y)
        pace.step(len(y))
        optimizers[1].step()
        plain.zero_grad()
    pace.close()
    torch.testing.assert_close(model.state_dict(), plain.state_dict())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("behind_torchs_back", [False, True])
def test_weights_that_are_replaced_before_close_are_warned_of(scheme: str, behind_torchs_back: bool) -> None:
    model = toy_model()
    best = {name: t.clone() for name, t in model.state_dict().items()}
    pace, _ = joined(scheme, model)
    for x, y in batches(pace, 3):
        backward(model, x, y)
        pace.step()
    if behind_torchs_back:
        for name, p in model.named_parameters():
            p.data.copy_(best[name])
    else:
        model.load_state_dict(best)
    with pytest.warns(UserWarning, match=r"so that is lost: do it after pace\.close\(\)"):
        pace.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_final_model_is_the_same_on_all_workers_though_loops_changed_theirs(scheme: str, tmp_path: Path) -> None:
    """A loop may write behind torch's back after the last step."""

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in batches(pace, 4):
            backward(model, x, y)
            pace.step()
        for p in model.parameters():
            p.data.clamp_(-0.05, 0.05)

    with pytest.warns(UserWarning, match=r"changed after the last pace\.step\(\)"):
        _, models = run_loops(tmp_path / "run", scheme, loop, workers=2)
    for name, t in models[0].state_dict().items():
        assert torch.equal(t, models[1].state_dict()[name]), name
