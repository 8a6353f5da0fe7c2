"""Makes the steps of a torch scheduler, and knows how many steps it has: of those that say so.

OneCycleLR                               total_steps, and torch refuses one more
CosineAnnealingLR                        T_max
LinearLR, PolynomialLR, ConstantLR       total_iters
MultiStepLR                              its last milestone
SequentialLR                             its last milestone, and the length of the last part
ChainedScheduler                         that of its longest part
LambdaLR of transformers                 num_training_steps
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

from torch.optim import lr_scheduler as torchs

from paceline.runtime.worker.schedules.scheduler_calls import make_step

TOLERANCE = 0.05
"""Part of its steps by which a schedule may miss its end: the batches of several workers do not end where those of one
do."""


def parts_of(scheduler: Any) -> Sequence[Any]:
    """Returns the schedulers that one is made of; () for a single one."""
    parts: Sequence[Any] = getattr(scheduler, "_schedulers", ())
    return parts


def position_of(scheduler: Any) -> int:
    """Returns the steps that a scheduler has made, whoever has called them."""
    if hasattr(scheduler, "last_epoch"):
        return int(scheduler.last_epoch)
    return max(map(position_of, parts_of(scheduler)), default=0)


def length_of(scheduler: Any) -> int | None:
    """Returns the steps that a scheduler is made for; None where it does not say."""
    match scheduler:
        case torchs.OneCycleLR():
            return int(scheduler.total_steps)
        case torchs.CosineAnnealingLR():
            return int(scheduler.T_max)
        case torchs.LinearLR() | torchs.PolynomialLR() | torchs.ConstantLR():
            return int(scheduler.total_iters)
        case torchs.MultiStepLR():
            return max(scheduler.milestones, default=None)
        case torchs.SequentialLR():
            before = max(scheduler._milestones, default=0)
            return before + (length_of(scheduler._schedulers[-1]) or 0)
        case torchs.ChainedScheduler():
            return max(filter(None, map(length_of, parts_of(scheduler))), default=None)
        case torchs.LambdaLR():
            return _length_of_functions(scheduler.lr_lambdas)
    return None


def _length_of_functions(functions: Sequence[Any]) -> int | None:
    """Returns what the functions of a LambdaLR say of its length, as those of transformers do."""
    for function in functions:
        if isinstance(function, functools.partial):
            told = function.keywords.get("num_training_steps")
            if isinstance(told, int):
                return told
    return None


def ends_with_run(scheduler: Any) -> bool:
    """Returns True if the last rate of a scheduler is meant for the end of a run, as that of a warm-up is not."""
    match scheduler:
        case torchs.OneCycleLR() | torchs.CosineAnnealingLR() | torchs.PolynomialLR():
            return True
        case torchs.LinearLR():
            return bool(scheduler.end_factor < scheduler.start_factor)
        case torchs.SequentialLR():
            return ends_with_run(scheduler._schedulers[-1])
        case torchs.ChainedScheduler():
            return any(map(ends_with_run, parts_of(scheduler)))
        case torchs.LambdaLR():
            return length_of(scheduler) is not None
    return False


def is_over(scheduler: Any) -> bool:
    """Returns True if torch would refuse a further step."""
    if isinstance(scheduler, torchs.OneCycleLR):
        return bool(scheduler.last_epoch >= scheduler.total_steps)
    return any(map(is_over, parts_of(scheduler)))


class ScheduleSteps:
    """Makes the steps of one scheduler that are due; torch's checks of a loop's order do not concern it.

    With `says` a line on standard error names a schedule that misses its end.
    """

    def __init__(self, scheduler: Any, *, says: bool) -> None:
        self.scheduler = scheduler
        self.made = self.left_out = 0
        self._says, self._said = says, False

    def make_due(self, due: int) -> None:
        """Makes steps until `due` are made. Those that torch would refuse are left out."""
        while self.made < due:
            if is_over(self.scheduler):
                self.left_out += 1
            else:
                self.make()
            self.made += 1

    def make(self) -> None:
        """Makes one step."""
        self.scheduler.optimizer._opt_called = True  # it is, where updates are made
        make_step(self.scheduler)

    def scale(self, ratio: float) -> None:
        """Multiplies the rates that the scheduler goes by; those of the optimizer are the caller's."""
        _scale(self.scheduler, ratio)

    # ---- against its length ------------------------------------------------------------------------------
    def name_past(self, why: str) -> None:
        """Names, once, a schedule that is clearly past its end, though that was meant to be the end of the run."""
        length = length_of(self.scheduler)
        if length is not None and ends_with_run(self.scheduler) and self._position - length > _tolerated(length):
            self._name(f"has made its {length:,} steps, and the run goes on: {why}")

    def name_lack(self, why: str) -> None:
        """Names a schedule that is clearly not at its end, at that of the run."""
        length, position = length_of(self.scheduler), self._position
        if length is not None and length - position > _tolerated(length):
            self._name(f"made {position:,} of its {length:,} steps: {why}")

    @property
    def _position(self) -> int:
        """Returns the steps of the scheduler, with those that were left out."""
        return position_of(self.scheduler) + self.left_out

    def _name(self, what: str) -> None:
        if self._says and not self._said:
            self._said = True
            print(f"paceline: the schedule ({type(self.scheduler).__name__}) {what}", file=sys.stderr)


def _tolerated(length: int) -> float:
    """Returns by how many steps a schedule may miss its end without a word."""
    return max(1, TOLERANCE * length)


def _scale(scheduler: Any, ratio: float) -> None:
    for part in parts_of(scheduler):
        _scale(part, ratio)
    if hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs = [base * ratio for base in scheduler.base_lrs]
    if isinstance(scheduler, torchs.OneCycleLR):  # which goes by numbers of the groups
        for group in scheduler.optimizer.param_groups:
            group.update({name: group[name] * ratio for name in ("initial_lr", "max_lr", "min_lr")})
