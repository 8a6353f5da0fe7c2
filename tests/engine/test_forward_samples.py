"""Samples counted by what a model is called with, in the ways that training loops call models."""

from __future__ import annotations

import copy
import io
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paceline.core.errors import ConfigError
from paceline.engine.forward_samples import ForwardSamples, first_dimension


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        found: Tensor = self.two(self.one(x).tanh()) * scale
        return found

    def loss(self, x: Tensor) -> Tensor:
        return self.forward(x).mean()


def batch(samples: int) -> Tensor:
    return torch.randn(samples, 4)


def counter_of(model: nn.Module, **settings: Any) -> ForwardSamples:
    parameters = list(model.parameters())
    return ForwardSamples(model, lambda: any(p.grad is not None for p in parameters), **settings)


def clear(model: nn.Module) -> None:
    for p in model.parameters():
        p.grad = None


# ---- what loops do ---------------------------------------------------------------------------------------------
Loop = Callable[[nn.Module], Any]


def plain(model: nn.Module) -> None:
    model(batch(8)).mean().backward()


def accumulated(model: nn.Module) -> None:
    for samples in (8, 8, 3):
        model(batch(samples)).mean().backward()


def after_an_evaluation(model: nn.Module) -> None:
    with torch.no_grad():
        model(batch(100))
    model.eval()
    model(batch(100))
    model.train()
    plain(model)


def after_a_skipped_batch(model: nn.Module) -> None:
    model(batch(100)).mean()  # `continue` before backward
    plain(model)


def after_cleared_gradients(model: nn.Module) -> None:
    model(batch(100)).mean().backward()
    clear(model)
    plain(model)


def of_two_views(model: nn.Module) -> None:
    (model(batch(8)) * model(batch(8))).mean().backward()


def of_two_losses(model: nn.Module) -> None:
    out = model(batch(8))
    out.mean().backward(retain_graph=True)
    out.square().mean().backward()


def of_time_steps(model: nn.Module) -> None:
    torch.stack([model(batch(8)) for _ in range(5)]).mean().backward()


def of_a_gradient_penalty(model: nn.Module) -> None:
    x = batch(8).requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (model(batch(8)).mean() + slope.norm()).backward()


def of_an_attack(model: nn.Module) -> None:
    x = batch(8)
    for _ in range(3):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).mean(), x)
        x = x + slope.sign()
    model(x.detach()).mean().backward()


def of_a_second_derivative(model: nn.Module) -> None:
    x = batch(8).requires_grad_()
    (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (first + second).mean().backward()


def sharpness_aware(model: nn.Module) -> None:
    x = batch(8)
    for last in (False, True):
        model(x).mean().backward()
        if not last:
            clear(model)


def of_checkpoints(model: nn.Module) -> None:
    for reentrant in (True, False):
        x = batch(4).requires_grad_()
        checkpoint(model, x, use_reentrant=reentrant).mean().backward()  # type: ignore[no-untyped-call]


def of_two_checkpointed_views(model: nn.Module) -> None:
    views = [checkpoint(model, batch(8).requires_grad_(), use_reentrant=True) for _ in range(2)]  # type: ignore[no-untyped-call]
    (views[0] * views[1]).mean().backward()


def by_keyword(model: nn.Module) -> None:
    model(scale=2.0, x=batch(8)).mean().backward()


@pytest.mark.parametrize(
    ("loop", "samples"),
    [
        (plain, 8),
        (accumulated, 19),
        (after_an_evaluation, 8),
        (after_a_skipped_batch, 8),
        (after_cleared_gradients, 8),
        (of_two_views, 8),
        (of_two_losses, 8),
        (of_time_steps, 8),
        (of_a_gradient_penalty, 8),
        (of_an_attack, 8),
        (of_a_second_derivative, 8),
        (sharpness_aware, 8),
        (of_checkpoints, 8),
        (of_two_checkpointed_views, 8),
        (by_keyword, 8),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_step_has_the_samples_whose_gradient_it_has(loop: Loop, samples: int) -> None:
    model = Net()
    counter = counter_of(model)
    for _ in range(2):  # the second step counts as the first does
        loop(model)
        assert counter.take() == samples
        clear(model)
        assert counter.take() is None


def test_a_backward_pass_after_the_step_counts_for_the_next_one() -> None:
    """A loop may compute ahead, and a loss may be used twice."""
    model = Net()
    counter = counter_of(model)
    out = model(batch(8))
    out.mean().backward(retain_graph=True)
    assert counter.take() == 8
    out.square().mean().backward()
    assert counter.take() == 8


def test_cleared_takes_along_what_was_counted() -> None:
    model = Net()
    counter = counter_of(model)
    plain(model)
    counter.cleared()
    assert counter.take() is None


def test_nothing_is_counted_while_the_loop_has_its_samples_from_elsewhere() -> None:
    model, wanted = Net(), [False]
    counter = counter_of(model, wanted=lambda: wanted[0])
    plain(model)
    assert counter.take() is None
    wanted[0] = True
    plain(model)
    assert counter.take() == 8


# ---- several models --------------------------------------------------------------------------------------------
def test_a_gan_counts_a_batch_in_the_step_of_each_model() -> None:
    """Both halves of the discriminator's loss go through one backward pass."""
    d, g = nn.Linear(4, 1), nn.Linear(2, 4)
    models = nn.ModuleDict({"D": d, "G": g})
    counter = counter_of(models)
    assert counter.names == "Linear"
    for _ in range(2):
        fake = g(torch.randn(8, 2))
        (d(batch(8)).mean() - d(fake.detach()).mean()).backward()
        assert counter.take() == 8
        clear(models)
        d(fake).mean().backward()
        assert counter.take() == 8
        clear(models)


def test_the_parts_of_a_model_count_a_batch_once() -> None:
    """A module without a `forward` is never called; its parts are."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.heads = nn.Linear(4, 4), nn.ModuleList([nn.Linear(4, 1), Net()])

    model = Parts()
    counter = counter_of(model)
    assert counter.names == "Linear or Net"
    h = model.encoder(batch(8))
    sum(head(h).mean() for head in model.heads).backward()  # type: ignore[union-attr]
    assert counter.take() == 8


# ---- inputs and outputs ----------------------------------------------------------------------------------------
class Returns(nn.Module):
    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.make = nn.Linear(4, 2), make

    def forward(self, x: Tensor) -> Any:
        return self.make(self.inner(x))


@pytest.mark.parametrize(
    ("make", "loss_of"),
    [
        (lambda y: (y.detach(), y), lambda out: out[1]),
        (lambda y: {"loss": y.mean(), "logits": y}, lambda out: out["logits"]),
        (lambda y: UserDict(loss=y.mean(), layers=[y, y + 1]), lambda out: out["layers"][1]),
        (lambda y: SimpleNamespace(loss=y.mean(), scores=y.detach()), lambda out: out.loss),
        (lambda y: [y[:, 0], y[:, 1]], lambda out: out[0]),
    ],
    ids=["a tuple", "a dict", "a mapping", "an object", "a list"],
)
def test_any_tensor_of_an_output_counts(make: Callable[[Tensor], Any], loss_of: Callable[[Any], Tensor]) -> None:
    model = Returns(make)
    counter = counter_of(model)
    loss_of(model(batch(8))).mean().backward()
    assert counter.take() == 8


@pytest.mark.parametrize(
    ("inputs", "length"),
    [
        (torch.zeros(3, 2), 3),
        ([1, "two", torch.zeros(3)], 3),
        ({"step": torch.tensor(7), "x": torch.zeros(5, 2)}, 5),
        ((UserDict(ids=torch.zeros(4, 9)),), 4),
        ({"a": {"b": [torch.zeros(0, 2)]}}, 0),
        (torch.tensor(1.0), None),
        ("text", None),
    ],
    ids=str,
)
def test_the_first_dimension_is_that_of_the_first_tensor_that_has_one(inputs: Any, length: int | None) -> None:
    assert first_dimension(inputs) == length


def test_why_nothing_is_known_is_said() -> None:
    model = Net()
    counter = counter_of(model)
    model.loss(batch(8)).backward()
    assert counter.take() is None
    assert "Net was not called" in counter.why_unknown

    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))

        def forward(self, factor: float) -> Tensor:
            return self.w * factor

    constant = Constant()
    counter = counter_of(constant)
    constant(2.0).sum().backward()
    assert counter.take() is None
    assert "without a tensor" in counter.why_unknown

    silent = Returns(lambda y: None)
    counter = counter_of(silent)
    silent(batch(8))
    assert counter.take() is None
    assert "returned no tensor" in counter.why_unknown

    counter = counter_of(model)
    model(batch(8))
    assert counter.take() is None
    assert "no backward pass came through" in counter.why_unknown
    assert counter.take() is None
    assert "was not called" in counter.why_unknown, "in the next step"


# ---- samples_of ------------------------------------------------------------------------------------------------
def test_a_function_of_the_arguments_counts_in_place_of_the_first_dimension() -> None:
    model = Net()
    counter = counter_of(model, samples_of=lambda x, scale=1.0: (x[:, 0] > -9).sum() * int(scale))
    for scale in (1.0, 3.0):
        model(batch(5), scale=scale).mean().backward()
    assert counter.take() == 20
    assert counter.by_user


def test_a_fraction_of_a_sample_is_refused_with_the_way_out() -> None:
    model = Net()
    counter = counter_of(model, samples_of=lambda x: torch.tensor(3.7))
    plain(model)
    with pytest.raises(ConfigError, match=r"samples_of returned 3\.7: .* return round\(1000 \* weight\)"):
        counter.take()


@pytest.mark.parametrize("wrong", [-1, None, "many", torch.ones(2), float("nan")])
def test_what_is_no_number_of_samples_is_refused(wrong: Any) -> None:
    model = Net()
    counter = counter_of(model, samples_of=lambda x: wrong)
    plain(model)
    with pytest.raises(ConfigError, match="samples_of returned"):
        counter.take()


# ---- the model stays the user's ----------------------------------------------------------------------------------
def size_of(what: Any) -> int:
    file = io.BytesIO()
    torch.save(what, file)
    return len(file.getvalue())


def test_a_model_that_is_saved_copied_or_scripted_has_no_trace_of_it() -> None:
    model = Net()
    wanted, attributes = size_of(model), set(vars(model))
    counter = counter_of(model)
    plain(model)
    assert size_of(model) == wanted
    for twin in (copy.deepcopy(model), copy.copy(model)):
        assert set(vars(twin)) == attributes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(model)(batch(2))
        torch.jit.trace(model, batch(2), check_trace=False)  # type: ignore[no-untyped-call]
    counter.end()
    assert set(vars(model)) - {"__overloads__"} == attributes, "but for what torch.jit.script leaves"
    plain(model)
    assert counter.take() == 8, "the first one only"


def test_hooks_of_the_user_stay_in_force() -> None:
    model, calls = Net(), list[str]()
    model.register_forward_hook(lambda *_: calls.append("hook"))
    counter = counter_of(model)
    plain(model)
    assert (calls, counter.take()) == (["hook"], 8)


def test_a_later_counter_of_the_same_model_leaves_the_earlier_one_alone() -> None:
    model = Net()
    first, second = counter_of(model), counter_of(model)
    first.end()
    plain(model)
    assert (first.take(), second.take()) == (None, 8)


def test_a_scripted_model_is_counted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = torch.jit.script(Net())
    counter = counter_of(model)
    plain(model)
    assert counter.take() == 8


@pytest.fixture
def compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("order", ["compiled first", "compiled later", "in place", "joined within"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_model_is_counted(order: str, fullgraph: bool) -> None:
    model: Any = Net()
    how: dict[str, Any] = {"backend": "eager", "fullgraph": fullgraph}
    if order == "in place":
        model.compile(**how)
    if order == "compiled first":
        model = torch.compile(model, **how)
    within = torch.compile(model, **how) if order == "joined within" else None
    counter = counter_of(model)
    if order == "compiled later":
        model = torch.compile(model, **how)
    called = model if within is None else within
    for samples in (8, 3):
        called(batch(samples)).mean().backward()
        assert counter.take() == samples
    assert "Net" in counter.names
    counter.end()
    plain(called)
    assert counter.take() is None


@pytest.mark.usefixtures("compiler")
def test_a_function_that_is_compiled_with_the_model_in_it_runs_and_is_not_counted() -> None:
    model = Net()
    counter = counter_of(model)
    torch.compile(lambda x: model(x).mean(), backend="eager", fullgraph=True)(batch(8)).backward()
    assert counter.take() is None
    assert "compiled function" in counter.why_unknown
