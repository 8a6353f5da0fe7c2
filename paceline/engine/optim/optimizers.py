"""Implements optimizers in the two places they run: on a server as `Update` rules over values, on a worker in place.

SGD is written out in vector arithmetic, one pass over memory for each sum: w - lr g, and one or two more with momentum
and weight decay; on small models that is several times as fast as torch.optim, whose bookkeeping costs more than the
numbers. Everything else is torch.optim itself over one flat parameter, with its fused kernel, or one of
`paceline.engine.optim.lars_lamb`. Most optimizers work element by element, so that a slice needs nothing but itself;
LARS and LAMB need whole tensors and their lengths (`OptimizerRecipe.needs_tensors`), clipping the whole gradient
(`OptimizerRecipe.needs_model`); a recipe may need both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.spans import Spans, within
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.muon import MuonWithAdamW
from paceline.engine.optim import lr_schedule as schedules
from paceline.engine.optim.lars_lamb import LAMB, LARS
from paceline.engine.optim.optimizer_state import OptimizerState
from paceline.engine.optim.unused_parameters import Pieces, ZeroTensors, kept, without_numbers
from paceline.engine.specs import MOMENTUM, MUON, OPTIMIZERS, OptimizerRecipe, ScheduleRecipe
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

CONSTANT = ScheduleRecipe()
KINDS: dict[type, str] = {
    torch.optim.SGD: "sgd",
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adamw",
    LARS: "lars",
    LAMB: "lamb",
}


class ServerOptimizer(ABC):
    """Keeps a learning rate on the clock of samples seen; a subclass says what a step does with it.

    Calling it returns new weights and leaves `w` and `g` as they are. The schedule's factor is that of the samples seen
    before the update. A gradient longer than the recipe's `clip_norm` is scaled down first, as torch does it.

    Unused spans of the model stay as they are, and so does the optimizer's memory of them. `start` is where in the
    model these weights begin. zeros_unused: finds the unused spans where no message names them: tensors whose gradient
    is zero throughout.
    by_rows: True if it leaves the rows of a table alone whose gradient is zero.
    rate_factors: by phase of the run, what the scheme multiplies the learning rate with (`Scheme.rate_share`).
    """

    by_rows = False
    start = 0
    rate_factors: tuple[float, ...] = (1.0,)
    rate_factor = 1.0
    zeros_unused: ZeroTensors | None = None

    def __init__(self, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT) -> None:
        schedules.check(schedule)
        self.recipe = recipe
        self.schedule = schedule
        self.lr = recipe.lr
        self.samples_seen = 0

    def __call__(self, w: Flat, g: Flat, samples: int, unused: Spans = ()) -> Flat:
        lr = self.lr * schedules.factor(self.schedule, self.samples_seen)
        if self.rate_factor != 1:  # without, a rate that is a tensor or an integer stays what it is
            lr *= self.rate_factor
        if self.zeros_unused is not None:
            unused = self.zeros_unused.of(g)
        elif unused:
            unused = without_numbers(g, within(unused, self.start, self.start + len(w)))
        if self.recipe.clip_norm:
            g = g * min(1.0, self.recipe.clip_norm / (g.norm() + 1e-6))
        new = self.apply(w, g, lr, unused)
        self.samples_seen += samples
        return new

    @abstractmethod
    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        """Makes one step at learning rate `lr`, except where the model is unused; returns the new weights."""

    @abstractmethod
    def reset(self) -> None:
        """Forgets all updates so far; learning rate and schedule go on."""

    def set_lr(self, lr: float) -> None:
        """Sets the base learning rate from now on; the schedule still applies."""
        self.lr = lr

    def enter_phase(self, phase: int) -> None:
        """Goes on at the rate of that phase of the run."""
        self.rate_factor = self.rate_factors[min(phase, len(self.rate_factors) - 1)]

    def follow(self, recipe: OptimizerRecipe) -> None:
        """Takes the numbers of `recipe`, which is of the same optimizer, from now on; the schedule still applies."""
        self.recipe, self.lr = recipe, recipe.lr

    def state(self) -> dict[str, Tensor | float | int]:
        """Returns all that a checkpoint must keep; tensors are copies."""
        return {"samples_seen": self.samples_seen, "lr": self.lr}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        """Goes on where `state()` was taken. Raises KeyError when something is missing."""
        self.samples_seen = int(state["samples_seen"])
        self.lr = float(state["lr"])


class SGD(ServerOptimizer):
    """An update is d = g + lambda w;  v = mu v + d (v = d at first);  w - lr v, or with Nesterov w - lr (d + mu v)."""

    v: Flat | None = None

    def __init__(self, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT) -> None:
        super().__init__(recipe, schedule)
        self.by_rows = not recipe.momentum and not recipe.weight_decay

    def follow(self, recipe: OptimizerRecipe) -> None:
        super().follow(recipe)
        self.by_rows = not recipe.momentum and not recipe.weight_decay

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        """Makes one step in vector arithmetic; weights and momentum of unused spans are put back afterwards."""
        mu, decay, before = self.recipe.momentum, self.recipe.weight_decay, self.v
        d = g + w * decay if decay else g
        if not mu:
            new = w - d * lr
        else:
            self.v = d + before * mu if before is not None else d
            new = w - (d + self.v * mu if self.recipe.nesterov else self.v) * lr
        if not unused or self.by_rows:  # without momentum and decay a gradient of zero changes nothing
            return new
        self.v = kept(self.v, before, unused) if self.v is not None else None
        return kept(new, w, unused)

    def reset(self) -> None:
        self.v = None

    def state(self) -> dict[str, Tensor | float | int]:
        """Returns `v` and its scale apart: multiplied out the numbers would be rounded."""
        if self.v is None:
            return super().state() | {"scale": 1.0}
        return super().state() | {"momentum": self.v.tensor.clone(), "scale": self.v.scale}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        super().load_state(state)
        v = state.get("momentum")
        self.v = Flat.copy_of(v) * float(state.get("scale", 1.0)) if isinstance(v, Tensor) else None


class TorchRule(ServerOptimizer):
    """Lets torch.optim make the step on a fresh copy of the weights.

    `tensors`: lengths of the tensors in the weights.
    """

    def __init__(
        self, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT, tensors: Sequence[int] = ()
    ) -> None:
        super().__init__(recipe, schedule)
        self._pieces = Pieces(lambda parameters: torch_optimizer(recipe, parameters[0], tensors), tensors)

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        fresh = spare(len(w), w.device)
        w.copy_into(fresh)
        self._pieces.step(fresh, g.value().to(w.device), (lr,), unused)
        return Flat(fresh)

    def follow(self, recipe: OptimizerRecipe) -> None:
        super().follow(recipe)
        set_numbers(self._pieces.numbers[0], recipe)

    def reset(self) -> None:
        self._pieces.reset()

    def state(self) -> dict[str, Tensor | float | int]:
        return {**super().state(), **self._pieces.state()}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        super().load_state(state)
        self._pieces.load_state({k: v for k, v in state.items() if k not in ("samples_seen", "lr")})


class LocalStepsOnly(ServerOptimizer):
    """Stands where a rule is asked for and none will be used: a scheme with local steps applies no gradients."""

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        """Raises ConfigError."""
        raise ConfigError(f"{self.recipe.name} makes local steps only: take a scheme with local steps, such as muloco")

    def reset(self) -> None:
        """Does nothing: there is no memory."""


def make_rule(
    recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT, tensors: Sequence[int] = ()
) -> ServerOptimizer:
    """Returns the rule of `recipe`, for weights made of tensors of these lengths, where that matters to it.

    Raises ConfigError for a recipe or schedule that describes none.
    """
    check(recipe)
    if recipe.by_path is not None:
        from paceline.engine.optim.whole_tensors import PathRule  # imported here, because it imports this file

        return PathRule(recipe, schedule)
    if recipe.name == MUON:
        return LocalStepsOnly(recipe, schedule)
    if recipe.groups:
        from paceline.engine.optim.grouped_sgd import GroupedSGD  # likewise
        from paceline.engine.optim.parameter_groups import GroupedRule

        return GroupedSGD(recipe, schedule) if recipe.name == "sgd" else GroupedRule(recipe, schedule, tensors)
    if recipe.lazy:
        from paceline.engine.optim.lazy_updates import Lazy  # likewise

        return Lazy(recipe, schedule)
    return SGD(recipe, schedule) if recipe.name == "sgd" else TorchRule(recipe, schedule, tensors)


class LocalOptimizer:
    """A worker that trains locally steps by this optimizer: one fused kernel, in place, over the whole model.

    Raises ConfigError for a bad recipe or schedule.
    """

    def __init__(self, model: FlatModel, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT) -> None:
        check(recipe)
        schedules.check(schedule)
        self.model = model
        self.schedule = schedule
        self.lr = recipe.lr
        self._clip_norm = recipe.clip_norm
        self._parameters = [model.flat_parameter]
        if recipe.name == MUON:  # it needs the shapes
            self._parameters = model.parameters
            self._optimizer: torch.optim.Optimizer = muon_of(recipe, model)
        else:
            self._optimizer = torch_optimizer(recipe, model.flat_parameter, model.tensors)
        self.memory = OptimizerState(self._optimizer, self._parameters)

    def step(self, samples_seen: int) -> None:
        """Makes one update with the model's gradient.

        `samples_seen` by all workers before it sets the learning rate.
        """
        self.model.collect()
        if self._parameters is self.model.parameters:
            self.model.show_unused()
        if self._clip_norm:
            nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = self.lr * schedules.factor(self.schedule, samples_seen)
        self._optimizer.step()
        self.model.touched()

    def set_lr(self, lr: float) -> None:
        self.lr = lr

    def state(self) -> dict[str, Tensor | float | int]:
        """Returns all that `load_state` goes on from; tensors are copies."""
        memory = self.memory.show()
        return {"lr": self.lr} | ({} if memory is None else {"memory": memory.value()})

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        """Goes on where `state()` was taken. Raises KeyError when something is missing."""
        self.lr = float(state["lr"])
        memory = state.get("memory")
        if isinstance(memory, Tensor):
            self.memory.recall(Flat.copy_of(memory))
        else:
            self.memory.reset()


def check(recipe: OptimizerRecipe) -> None:
    """Raises ConfigError when `recipe` describes no optimizer."""
    for group in recipe.groups:
        check(group.optimizer)
    if not 0 <= recipe.clip_norm < math.inf:
        raise ConfigError(f"optimizer.clip_norm = {recipe.clip_norm}: must be 0 or more; 0 is none")
    if recipe.by_path is not None:
        return
    if recipe.name not in OPTIMIZERS:
        raise ConfigError(f"optimizer.name = {recipe.name!r}: must be one of {', '.join(OPTIMIZERS)}")
    if recipe.name not in MOMENTUM and (recipe.momentum or recipe.nesterov):
        raise ConfigError(f"optimizer.momentum: {recipe.name} has beta1 instead")
    if recipe.nesterov and recipe.name != "sgd":
        raise ConfigError(f"optimizer.nesterov: {recipe.name} has none")
    if recipe.nesterov and not recipe.momentum > 0:
        raise ConfigError("optimizer.nesterov needs a momentum: set optimizer.momentum, to 0.9 for example")
    # The numbers are checked here, not by making one of torch's optimizers: the first one in a process imports torch's
    # compiler, which takes two seconds.
    for name in ("lr", "momentum", "weight_decay", "eps", "beta1", "beta2", "muon_momentum"):
        value, high = getattr(recipe, name), 1.0 if name.startswith(("beta", "muon")) else math.inf
        if not 0 <= value < high:
            raise ConfigError(f"optimizer.{name} = {value}: must be 0 or more" + (", below 1" if high == 1 else ""))


def torch_optimizer(
    recipe: OptimizerRecipe, parameter: nn.Parameter, tensors: Sequence[int] = ()
) -> torch.optim.Optimizer:
    """Returns torch's optimizer of `recipe`, over one parameter, made of tensors of these lengths.

    Raises ValueError as torch does.
    """
    common: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    betas = recipe.beta1, recipe.beta2
    if recipe.name == "lars":
        return LARS([parameter], momentum=recipe.momentum, trust=recipe.trust, tensors=tensors, **common)
    if recipe.name == "lamb":
        return LAMB([parameter], betas=betas, eps=recipe.eps, tensors=tensors, **common)
    common["fused"] = parameter.device.type in ("cpu", "cuda") or None
    if recipe.name == "sgd":
        return torch.optim.SGD([parameter], momentum=recipe.momentum, nesterov=recipe.nesterov, **common)
    kind = torch.optim.Adam if recipe.name == "adam" else torch.optim.AdamW
    return kind([parameter], betas=betas, eps=recipe.eps, **common)


def muon_of(recipe: OptimizerRecipe, model: FlatModel) -> MuonWithAdamW:
    """Returns Muon with the numbers of `recipe` over the parameters of `model`. Raises ConfigError as that does."""
    return MuonWithAdamW(
        model.module,
        recipe.lr,
        momentum=recipe.muon_momentum,
        weight_decay=recipe.weight_decay,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.eps,
        among=model.parameters,
    )


def set_numbers(group: dict[str, Any], recipe: OptimizerRecipe) -> None:
    """Sets the numbers of `recipe` in a parameter group of an optimizer, those that the group has."""
    numbers = {
        "lr": recipe.lr,
        "momentum": recipe.momentum,
        "nesterov": recipe.nesterov,
        "weight_decay": recipe.weight_decay,
        "betas": (recipe.beta1, recipe.beta2),
        "eps": recipe.eps,
        "trust": recipe.trust,
    }
    group.update({name: number for name, number in numbers.items() if name in group})
