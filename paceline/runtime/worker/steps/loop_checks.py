"""What a training loop does beside `pace.step()` that would be lost or would count twice, said in one line.

    optimizer.step(), scaler.step(optimizer)         an error: the model would be updated twice
    weights changed before the first step            an error, which names load_state_dict where all were written, or an
                                                     optimizer in backward if no gradient is left
    weights changed later                            an error at the next step: the next weights take their place, or
                                                     they count as training of one worker; a warning for a worker of
                                                     several devices, where torch's counts of writes have to do
    optimizer.eval() without optimizer.train()       an error at the next step
    weights perturbed and restored before the step   nothing: numbers count, so sharpness-aware minimisation may do it
    pace.step() without a gradient, as one that      a warning
      optimizer.zero_grad() cleared after backward
    a gradient that is zero in every number          a warning; looked at in steps 1, 2, 4, 8, ...
    many batches, or all of an epoch, and no step    a warning
    many steps in a row that a scaler has skipped    a warning
    backward() and no step at all                    a warning
    batches larger than an equal share of the data   a warning: each is one pass over the worker's share
    parameters that the optimizer holds, unfrozen    an error at the next step: the run trains what was there at `join`
      or added to it after `join`
    other parameters added or unfrozen after `join`  a warning: no loop trains them, as no optimizer holds them
    weights changed between the last step and        a warning: the final model is that of all workers
      `pace.close()`

Each warning comes once. Of a worker that makes no steps the coordinator learns, too: others may wait for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.several_models import SeveralOptimizers
from paceline.engine.optim.evaluated_weights import show_trained
from paceline.engine.optim.own_optimizer import UserSteps
from paceline.engine.vectors.weight_samples import WeightSamples

BATCHES_WITHOUT_STEP_MAX = 100
"""Batches without a step after which the user is warned: so many are hardly gradient accumulation."""
SKIPPED_MAX = 30
"""Steps in a row that a gradient scaler may skip before the user is warned: from a scale of 2 ** 40, say, it needs
some 25."""
STEPS_BETWEEN_LOOKS = 16
"""Steps between two looks at the places of weights that torch has counted no write to, and at their numbers on a GPU,
which the look waits for."""
NAMED_MAX = 3
"""Parameters that a warning names."""
CHANGED = (
    "the model's weights were changed outside pace.step(): that would be lost, or count as training of this worker "
    "alone; to limit weights give paceline.join(..., constraint=function), and to go on from others call pace.close(), "
    "change them and call paceline.join again"
)
"""What a loop learns that changes weights between two steps."""
EVALUATED = (
    "optimizer.eval() was called after the last step, and training goes on with the weights to evaluate: call "
    "optimizer.train() before the next forward pass"
)
"""What a loop learns that trains where its optimizer would evaluate."""

_version_of, _requires_grad_of = attrgetter("_version"), attrgetter("requires_grad")


class LoopGuard:
    """Watches one worker's loop over `model` for mistakes; `steps`: of the user's own optimizer. `report` sends the
    coordinator why this worker makes no steps."""

    def __init__(
        self, model: nn.Module, flat: FlatModel, steps: UserSteps | None, report: Callable[[str], None]
    ) -> None:
        self._model, self._flat, self._steps_of_user, self._report = model, flat, steps, report
        self._optimizer = optimizer = steps.optimizer if steps else None
        self._trained = set(flat.parameters)
        self._outside = {p for p in model.parameters() if p.requires_grad} - self._trained
        self._frozen = [p for p in model.parameters() if not p.requires_grad]
        self._groups = self._lengths_of_groups()
        self._hook = optimizer.register_step_pre_hook(self._refuse) if optimizer else None
        self._versions: list[int] = []
        self._samples = WeightSamples(flat.numbers)
        self._noted = False  # are there samples of what this step began with?
        self._steps = self._batches = self._skipped = 0
        self._named_no_step = False
        self._said: set[str] = set()

    # ---- the optimizer -----------------------------------------------------------------------------------
    def _refuse(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Raises ConfigError when the loop calls the optimizer's own `step`."""
        if self._steps_of_user and not self._steps_of_user.calling:
            raise ConfigError(
                "optimizer.step() beside pace.step() would update the model twice: leave it, or "
                "scaler.step(optimizer), out; pace.step() does what is needed"
            )

    # ---- the weights -------------------------------------------------------------------------------------
    def note_weights(self) -> None:
        """Notes the weights: whatever changes them from here on comes from the loop."""
        flat = self._flat
        self._versions = list(map(_version_of, flat.parameters))
        self._noted = not flat.in_ranks
        if not self._noted:
            return
        if flat.settled:
            self._samples.note()
        else:
            self._samples.begin()
            flat.on_arrival(self._samples.note_part)

    def before_step(self) -> None:
        """Raises ConfigError when what would be handed over is not what was asked for."""
        self._batches = self._skipped = 0
        self._steps += 1
        self._look_at_weights()
        if self._lengths_of_groups() != self._groups or any(map(_requires_grad_of, self._frozen)):
            self._refuse_untrained()
        if not self._flat.has_gradient:
            several = type(self._optimizer) is SeveralOptimizers
            self._say(
                "pace.step() found no gradient: call backward() before it, and clear no gradients in between"
                + (": a step clears those of all models; one step of all is pace.step()" if several else "")
            )
        if not self._steps & (self._steps - 1):  # at steps 1, 2, 4, 8, ...
            self._look_at_model()
            self._look_at_gradient()

    def _look_at_gradient(self) -> None:
        """Warns of a gradient in which every number is zero."""
        if self._flat.gradient_is_zero and self._flat.has_gradient:
            self._say(
                "pace.step() found a gradient in which every number is zero: nothing is trained; leave "
                "optimizer.zero_grad() between backward() and pace.step() out, which clears gradients itself"
            )

    def _look_at_weights(self) -> None:
        """Raises ConfigError for weights that were changed outside `pace.step`."""
        flat, versions = self._flat, map(_version_of, self._flat.parameters)
        written = [now != before for now, before in zip(versions, self._versions, strict=False)]
        if not self._noted:  # there is no sample of weights that lie on several devices
            changed = any(written)
        else:
            looks = any(written) or self._steps % STEPS_BETWEEN_LOOKS == 1
            if looks and flat.settled:
                flat.bring_home()
            changed = (looks or flat.device.type == "cpu") and self._samples.changed
        if not changed:
            return
        if self._steps == 1 and all(written):
            if not flat.has_gradient:
                raise ConfigError(
                    "the model's weights were changed before the first pace.step(), and no gradient is left, as by an "
                    "optimizer that steps in hooks of backward: leave it out; pace.step() makes the step, by the "
                    "optimizer of paceline.join"
                )
            raise ConfigError(
                "the model's weights were replaced after paceline.join, by load_state_dict perhaps; the run has begun "
                "with others: load a checkpoint before paceline.join"
            )
        if self._noted:
            turned = show_trained(self._optimizer, flat.numbers) and not self._samples.changed
            raise ConfigError(EVALUATED if turned else CHANGED)
        self._say(CHANGED)

    def _lengths_of_groups(self) -> list[int]:
        """Returns how many parameters each group of the optimizer holds."""
        return [len(group["params"]) for group in self._optimizer.param_groups] if self._optimizer else []

    def _refuse_untrained(self) -> None:
        """Raises ConfigError for parameters that a plain loop would train from here on, and this run does not."""
        held = {p for group in self._optimizer.param_groups for p in group["params"]} if self._optimizer else set()
        names = {p: name for name, p in self._model.named_parameters()}
        if found := [names.get(p, "one that is not in the model") for p in held - self._trained if p.requires_grad]:
            raise ConfigError(
                f"unfrozen or given to the optimizer after paceline.join: {_listed(sorted(found))}; this run does not "
                "train that: call pace.close() and paceline.join again after such a change, or join with it in the "
                "optimizer and unfrozen, and freeze it after join until it is to be trained"
            )
        self._groups = self._lengths_of_groups()
        self._frozen = [p for p in self._frozen if not p.requires_grad]

    def _look_at_model(self) -> None:
        """Warns of parameters that were added or unfrozen too late, and that no optimizer holds."""
        named = self._model.named_parameters()
        found = [name for name, p in named if p.requires_grad and p not in self._trained and p not in self._outside]
        if found:
            self._say(f"not trained, as no optimizer held it at paceline.join: {_listed(found)}; do that before")

    def before_end(self) -> None:
        """Warns of weights that were changed after the last step, which the final model replaces."""
        if self._steps and self._noted and self._samples.changed:
            self._say(
                "the model's weights were changed after the last pace.step() (load_state_dict, perhaps): pace.close() "
                "loads the final model of all workers, so that is lost: do it after pace.close()"
            )

    # ---- batches -----------------------------------------------------------------------------------------
    @property
    def has_gradient(self) -> bool:
        """Returns True if backward has left a gradient that no step has taken."""
        return self._flat.has_gradient

    def asks_for(self, batch_size: int, share: int, equal_share: float) -> None:
        """Warns of batches larger than this worker's share, unless others have as few; `equal_share`: samples of an
        equal one."""
        if batch_size > max(share, equal_share + 1):
            self._say(f"batches of {batch_size} samples, and this worker's share has {share}: it gets batches of those")

    def epochs_unknown(self) -> None:
        """Warns that the run is to end after epochs, and nobody knows how long one is."""
        self._say(
            "--epochs does not end a loop with batches of its own, as nobody knows how many samples an epoch has: take "
            "them from pace.batches or pace.loader, or give --samples"
        )

    def batch(self) -> None:
        """Counts a batch that the loop gets; warns if many come without a step."""
        self._batches += 1
        if self._batches == BATCHES_WITHOUT_STEP_MAX + 1:
            self._no_step(f"{BATCHES_WITHOUT_STEP_MAX} batches")

    def end_of_batches(self) -> None:
        """Warns of a loop that took batches and made no step."""
        if self._batches and not self._steps:
            self._no_step(f"{self._batches} batch{'es' if self._batches > 1 else ''}")

    def skipped(self) -> None:
        """Counts a step that a gradient scaler has skipped; warns if many follow one another."""
        self._skipped += 1
        if self._skipped == SKIPPED_MAX:
            self._no_step("")

    def end_of_loop(self) -> None:
        """Warns of a loop that has called backward and ends without a step."""
        if not self._steps and self._flat.has_gradient:
            self._no_step("a backward pass")

    def _no_step(self, passes: str) -> None:
        """Warns of batches without a step, once, and reports them."""
        if self._named_no_step:
            return  # the counts of later epochs say nothing new
        self._named_no_step = True
        if self._skipped:
            why = (
                f"a gradient scaler has skipped the last {self._skipped} steps, as gradients were not finite: this "
                "worker has trained nothing since; give the scaler a smaller init_scale, or lower the learning rate"
            )
        else:
            why = f"{passes} without pace.step(): without it nothing is trained; call it after backward()"
        self._say(why)
        self._report(why)

    # ---- the end -----------------------------------------------------------------------------------------
    def end(self) -> None:
        """Gives optimizer and model back to the loop."""
        if self._hook is not None:
            self._hook.remove()
        self._flat.release()

    def _say(self, what: str) -> None:
        """Warns once of each thing."""
        if what not in self._said:
            self._said.add(what)
            warnings.warn(what, UserWarning, stacklevel=4)


def _listed(names: Sequence[str]) -> str:
    """Returns the first names, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"
