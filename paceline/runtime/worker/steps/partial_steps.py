"""Supports loops with several models, which make steps of one at a time, or of all: `pace.step("D")`.

A step of one hands over its gradient; everything else is unused in that step, as what no forward pass has used
(`paceline.core.spans`). So nobody updates it: neither weights, nor momentum, nor a count of steps.

A batch from which two models make a step each is trained once. So a worker has trained as many samples as the model
that has trained most. Example (a GAN, batches of 64): `step("D")` counts 64, `step("G")` on the same batch counts 0.
"""

from __future__ import annotations

import torch

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.several_models import SeveralOfOneModel, SeveralOptimizers, parameters_of


class PartialSteps:
    """Counts the steps of one worker; of one model unless `optimizer` is of several."""

    def __init__(self, flat: FlatModel, optimizer: torch.optim.Optimizer | None) -> None:
        members = optimizer.members if isinstance(optimizer, SeveralOptimizers) else {}
        if isinstance(optimizer, SeveralOfOneModel):
            members = {}
        held = {name: set(parameters_of(member)) for name, member in members.items()}
        self._flat = flat
        self._numbers = {
            name: frozenset(i for i, p in enumerate(flat.parameters) if p in own) for name, own in held.items()
        }
        self._samples = dict.fromkeys(members, 0)  # trained by each model
        self._all = self._counted = 0  # samples of all steps; those that count

    @property
    def several(self) -> bool:
        """Returns True for a loop with several models."""
        return len(self._numbers) > 1

    def begin(self, model: str | None) -> None:
        """Marks the gradients of `model` as those to hand over; None: all. Raises ConfigError for a model that is not
        there."""
        if model is None:
            return
        if model not in self._numbers:
            names = ", ".join(map(repr, self._numbers))
            raise ConfigError(
                f"pace.step({model!r}): the models of this run are {names}"
                if names
                else f"pace.step({model!r}): paceline.join was given one model; for several give it them by name"
            )
        self._flat.keep_gradients_of(self._numbers[model])

    def counted(self, model: str | None, samples: int) -> int:
        """Counts a step; returns how many of its `samples` no other model has trained before."""
        if not self._numbers:
            return samples
        before = max(self._samples.values())
        for name in self._samples if model is None else (model,):
            self._samples[name] += samples
        counted = max(self._samples.values()) - before
        self._all += samples
        self._counted += counted
        return counted

    def once(self, samples: int) -> int:
        """Returns how many of `samples`, as exchanges count them, were trained once.

        Before every model has made a step, all are taken to train on the same samples.
        """
        if not self._numbers:
            return samples
        if not all(self._samples.values()):
            return samples // len(self._numbers)
        return samples * self._counted // self._all
