"""Makes a rule of the user's own optimizer: where a worker makes the updates, its `step` is called, whatever it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.spans import Spans
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.optim.optimizer_state import OptimizerState
from paceline.engine.optim.optimizers import ServerOptimizer
from paceline.engine.optim.packed_state import pack, pack_groups, unpack, unpack_groups
from paceline.engine.specs import OptimizerRecipe, PathRecipe
from paceline.engine.vectors.flat import Flat

EVALUATES_AGAIN = "LBFGS evaluates the model several times a step"


def evaluates_again(optimizer: torch.optim.Optimizer | None) -> bool:
    """Returns True for an optimizer whose step evaluates the model several times, by a closure."""
    return type(optimizer) is torch.optim.LBFGS


class UserSteps:
    """Makes the steps of the user's optimizer, and knows which are made here.

    calling: True while one is being made. limit: is called after each, to limit the weights. evaluate: the closure of
    the step to be made, where the optimizer evaluates the model several times; its first evaluation, at the
    present weights, has returned `loss`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.calling = False
        self.limit: Callable[[], None] = lambda: None
        self.evaluate: Callable[[], Any] | None = None
        self.loss: Any = None

    def step(self, evaluated: Callable[[], None] = lambda: None) -> None:
        """Makes a step. `evaluated` is called after each further evaluation of the model."""
        self.calling = True
        try:
            if evaluates_again(self.optimizer):
                self.optimizer.step(self._evaluations(evaluated))
            else:
                self.optimizer.step()
            self.limit()
        finally:
            self.calling = False

    def _evaluations(self, evaluated: Callable[[], None]) -> Callable[[], Any]:
        """Returns the closure for the optimizer. Its first call returns the loss that is known. Raises ConfigError
        where the loop has given none."""
        evaluate, known = self.evaluate, [self.loss]
        if evaluate is None:
            raise ConfigError(f"{EVALUATES_AGAIN}: call pace.optimizer.step(closure) in place of pace.step()")

        def closure() -> Any:
            if known:
                return known.pop()
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    p.grad = None
            loss = evaluate()
            evaluated()
            return loss

        return closure


class OwnOptimizer(ServerOptimizer):
    """Updates on a worker whose scheme gives it the gradient of all: `optimizer.step()` with that gradient in `p.grad`.

    The state stays with `optimizer`, and so do its numbers, which nobody has to tell it of.
    """

    def __init__(self, flat: FlatModel, steps: UserSteps, recipe: OptimizerRecipe) -> None:
        super().__init__(recipe)
        self._flat, self._steps = flat, steps
        self._memory = OptimizerState(steps.optimizer, flat.parameters)

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        """Loads `w` and `g` into the module, lets the user's optimizer make its step, and returns
        the weights after it.
        """
        self._flat.load(w)
        self._flat.put_gradient(g, unused)
        with self._scaled():
            self._steps.step()
        self._flat.touched()  # some optimizers write to `p.data`, which torch does not count
        return cast(Flat, self._flat.weights())

    @contextlib.contextmanager
    def _scaled(self) -> Iterator[None]:
        """Multiplies the learning rates for one step; the user's own numbers are back after it."""
        groups = self._steps.optimizer.param_groups if self.rate_factor != 1 else []
        rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * self.rate_factor
        try:
            yield
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def follow(self, recipe: OptimizerRecipe) -> None:
        """Does nothing: `recipe` was read from this optimizer's numbers."""

    def reset(self) -> None:
        self._memory.reset()

    def state(self) -> dict[str, Tensor | float | int]:
        own = packed(self._steps.optimizer, self._flat.parameters, self.recipe.by_path)
        return {**super().state(), **own}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        super().load_state(state)
        recall(self._steps.optimizer, self._flat.parameters, state)


def packed(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], begun: PathRecipe | None = None
) -> dict[str, Tensor | float]:
    """What `optimizer` remembers of each parameter, as vectors as long as all and numbers by name; nothing of one that
    evaluates the model again, whose state is that of all parameters together.

    begun: what it was at join; then what it remembers in its groups is there, too."""
    if evaluates_again(optimizer):
        return {}
    own = [dict(optimizer.state[p]) if p in optimizer.state else {} for p in parameters]
    return pack(own, _lengths(parameters)) | (pack_groups(optimizer.param_groups, begun.groups) if begun else {})


def recall(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], state: dict[str, Any]) -> None:
    """`optimizer` remembers what `packed` gave, here or elsewhere."""
    unpack_groups(state, optimizer.param_groups)
    for p, own in zip(parameters, unpack(state, parameters), strict=True):
        if own:
            optimizer.state[p] = {name: v.to(p.device) if _lies_with(v) else v for name, v in own.items()}


def _lengths(parameters: Sequence[nn.Parameter]) -> list[int]:
    return [p.numel() for p in parameters]


def _lies_with(v: Any) -> bool:
    """Counts of steps stay on the host, as torch keeps them."""
    return isinstance(v, Tensor) and v.dim() > 0


def refusal_of(optimizer: torch.optim.Optimizer) -> str | None:
    """Returns why no training loop can hand over the steps of `optimizer`, or None."""
    if isinstance(optimizer, torch.optim.LBFGS) and not evaluates_again(optimizer):
        return f"{type(optimizer).__name__} is a class of LBFGS, which evaluates the model several times: take LBFGS"
    if isinstance(optimizer, torch.optim.SparseAdam):
        return "SparseAdam is torch.optim.Adam with lazy=True here: join(model, Adam(...), lazy=True)"
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):  # it has not been made by torch's `Optimizer.__init__`
        return (
            f"{type(optimizer).__name__} is a wrapper around an optimizer, as accelerator.prepare makes them: give "
            f"paceline.join the optimizer itself, before it is wrapped, and wrap pace.optimizer"
        )
    return None
