"""Carries out what the scheme asks of the loop, one mini-batch at a time.

A `Compute` or a `Train` may take several mini-batches; each is one forward and backward of the user's loop.

    begin(Compute(w, steps=2))    loads w; left = 2
    apply, done(32, 0.1)          a gradient; left = 1, returns None: no exchange yet
    apply, done(32, 0.1)          the mean of both gradients; returns Computed(g, 64, 0.2)
"""

from __future__ import annotations

import functools
import sys
from typing import Any, cast

import torch
from torch import Tensor

from paceline.core.effects import KEEP, RESET, Compute, Computed, Data, Train, Trained
from paceline.core.samples.sample_leases import joined
from paceline.core.spans import Spans, common
from paceline.core.vector import weighted_mean
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.optim.optimizer_state import OptimizerState
from paceline.engine.optim.optimizers import LocalOptimizer
from paceline.engine.optim.own_optimizer import OwnOptimizer, UserSteps, packed, recall
from paceline.engine.sparse.sparse_vector import AnyFlat
from paceline.engine.vectors.flat import Flat
from paceline.runtime.spec.job_spec import Recipe


class LocalWork:
    """Does one piece of work after the other. `optimizer`, or one made from the recipe, makes local steps."""

    def __init__(self, flat: FlatModel, recipe: Recipe, optimizer: torch.optim.Optimizer | None) -> None:
        self._flat, self._recipe = flat, recipe
        self.late = False  # may weights to compute at be copied when the module looks at them?
        self._local = Local(flat, recipe, optimizer)
        self._wanted: type[Compute | Train] | None = None
        self.samples_wanted: int | None = None  # size of the next mini-batch, where the scheme says it
        self._show_memory = False
        self.left = self._samples = 0  # mini-batches of this piece of work; samples of those that are done
        self._seconds = 0.0
        self._data: Data = ()
        self._sum: AnyFlat | None = None  # of the gradients so far, each times its samples
        self._unused: Spans = ()  # what none of these mini-batches has used
        self._said = False  # is it known that checkpoints are without the state of the ranks' optimizers?
        self._ended: AnyFlat | None = None  # where the last local steps led to

    def rule(self, *, meanwhile: bool = False) -> Any:
        """Returns what turns weights and a gradient into new weights, in roles of workers that make updates.

        `meanwhile`: updates are also made while the loop computes, so not in its module.
        """
        given, recipe = self._local.user, self._recipe.optimizer
        reduced = self._recipe.of_rule(recipe) != recipe  # the momentum is the scheme's
        if given is None or reduced or recipe.lazy or meanwhile or self._flat.in_ranks:
            return self._recipe.make_rule(self._flat.tensors)
        return self._recipe.scaled(OwnOptimizer(self._flat, given, recipe))

    @property
    def steps_of_user(self) -> UserSteps | None:
        """Returns the user's optimizer as it is called here; None without one."""
        return self._local.user

    def scale_rate(self, ratio: float) -> None:
        """Multiplies the learning rate of local steps, unless the user's optimizer makes them."""
        self._local.scale_rate(ratio)

    def begin(self, wanted: Compute | Train) -> bool:
        """Loads the weights to work at; returns True if there was an exchange since the last piece of work.

        The vectors of `wanted` are not kept.
        """
        first, self._wanted = self._wanted is None, type(wanted)
        self.samples_wanted = wanted.samples if isinstance(wanted, Compute) else None
        self._show_memory = isinstance(wanted, Train) and wanted.show_memory
        self.left, self._samples, self._seconds, self._sum = wanted.steps, 0, 0.0, None
        self._data = ()
        match wanted:
            case Compute(w):
                self._flat.load(cast(AnyFlat, w), late=self.late)
                return not first
            case Train(x, memory=memory):
                self._flat.load(cast(AnyFlat, x))
                self._local.recall(memory)
                # A local step that starts just where the last one ended goes on alone: nothing was exchanged.
                return not first and x is not self._ended

    @property
    def begins(self) -> bool:
        """Returns True if the next mini-batch is the first of this piece of work."""
        return not self._samples

    def apply(self, samples_seen: int) -> None:
        """Makes a local step, if the scheme trains locally. It is called between backward and `done`, and changes the
        model."""
        if self._wanted is Train:
            self._local.step(samples_seen)

    def done(self, samples: int, seconds: float, data: Data = (), *, last: bool = False) -> Computed | Trained | None:
        """Counts a mini-batch; returns the result when it was the last one asked for, or the `last` that there is.

        `data`: which samples, if leased.
        """
        self.left = 0 if last else self.left - 1
        self._samples += samples
        self._seconds += seconds
        self._data = joined((*self._data, *data))
        if self._wanted is Compute:
            g = self._add(samples)
            return None if self.left else Computed(g, self._samples, self._seconds, self._data, self._unused)
        return None if self.left else self._trained()

    def _trained(self) -> Trained:
        self._ended = self._flat.weights()
        memory = self._local.show() if self._show_memory else None
        return Trained(self._ended, self._samples, self._seconds, memory, self._data)

    def cut_short(self) -> Computed | Trained | None:
        """Returns the result of the mini-batches made so far, as the last ones; None if there are none."""
        if not self._samples:
            return None
        self.left = 0
        if self._wanted is Compute:
            assert self._sum is not None
            g = self._sum * (1.0 / self._samples)
            return Computed(g, self._samples, self._seconds, self._data, self._unused)
        return self._trained()

    def memory(self) -> Flat | None:
        """Returns a copy of the state of the worker's own optimizer; None for that of a user, who keeps it."""
        return self._local.show() if self._local.own else None

    def user_state(self) -> dict[str, Tensor | float]:
        """Returns the state of the user's own optimizer, packed; {} where there is none.

        Each rank of a worker of several devices has a part of it, and the parts are joined.
        """
        if self._local.user is None:
            return {}
        if self._flat.in_ranks:
            state = self._flat.optimizer_state()
            if not state and self._local.user.optimizer.state:
                self._say_not_kept(type(self._local.user.optimizer).__name__)
            return state
        return packed(self._local.user.optimizer, self._flat.parameters, self._recipe.optimizer.by_path)

    def _say_not_kept(self, kind: str) -> None:
        """Prints, once, that checkpoints are without the state of the ranks' optimizers."""
        if not self._said:
            self._said = True
            print(
                f"paceline: {kind} keeps tensors of other shapes than the parameters, and no rank has them whole: "
                "checkpoints are without its state, which begins anew after --resume",
                file=sys.stderr,
            )

    def recall_user(self, state: dict[str, Any]) -> None:
        """Restores what `user_state` returned in an earlier incarnation of the run."""
        if self._flat.in_ranks:
            self._flat.load_optimizer_state(state)
        elif self._local.user:
            recall(self._local.user.optimizer, self._flat.parameters, state)

    def recall(self, memory: Flat) -> None:
        """Restores what `memory` returned in an earlier incarnation of the run."""
        self._local.recall(memory)

    def _add(self, samples: int) -> AnyFlat:
        """Returns the mean of the gradients so far, as one large batch would have it."""
        g, unused = self._flat.gradient(), self._flat.unused()
        self._unused = unused if self._sum is None else common(self._unused, unused)
        if self._sum is None and not self.left:
            return g
        weighted = g * float(samples)
        self._sum = weighted if self._sum is None else self._sum + weighted
        return cast(AnyFlat, weighted_mean(self._sum, self._samples))


class Local:
    """Makes local steps, by the user's optimizer or by one made from the recipe when it is first needed."""

    def __init__(self, flat: FlatModel, recipe: Recipe, given: torch.optim.Optimizer | None) -> None:
        self._flat, self._recipe = flat, recipe
        self.user = UserSteps(given) if given is not None else None
        self.own = given is None
        self._of_given = OptimizerState(given, flat.parameters) if given is not None else None
        self._rate_factor = 1.0  # on that of an optimizer that is made here

    @functools.cached_property
    def _made(self) -> LocalOptimizer:
        """Makes an optimizer of the recipe, where the user's own does not do the local steps."""
        made = LocalOptimizer(self._flat, self._recipe.optimizer, self._recipe.schedule)
        made.set_lr(made.lr * self._rate_factor)
        return made

    @functools.cached_property
    def _memory(self) -> OptimizerState:
        """Returns the state of the optimizer that does the local steps."""
        return self._of_given or self._made.memory

    def step(self, samples_seen: int) -> None:
        """Makes one update of the model, in place."""
        if self.user is not None:
            self._prepare_gradient()
            self.user.step(self._prepare_gradient)
            self._flat.touched()  # some write to `p.data`
        else:
            self._made.step(samples_seen)

    def _prepare_gradient(self) -> None:
        """Prepares what backward has left for the user's optimizer."""
        self._flat.show_unused()
        if self._recipe.optimizer.clip_norm:
            self._flat.clip_gradients(self._recipe.optimizer.clip_norm)

    def scale_rate(self, ratio: float) -> None:
        """Multiplies the learning rate of the optimizer that is made here; that of the user is the caller's."""
        self._rate_factor *= ratio
        if "_made" in self.__dict__:
            self._made.set_lr(self._made.lr * ratio)

    def recall(self, memory: Any) -> None:
        """Sets the optimizer's state: KEEP leaves it, RESET empties it, a vector replaces it. Raises TypeError for all
        else."""
        if isinstance(memory, Flat):
            self._memory.recall(memory)
        elif memory == RESET:
            self._flat.reset_others()
            self._memory.reset()
        elif memory != KEEP:
            raise TypeError(f"no optimizer can be given {memory!r} to remember")

    def show(self) -> Flat | None:
        """Returns the optimizer's state as one vector; None if it has none."""
        return self._memory.show()
