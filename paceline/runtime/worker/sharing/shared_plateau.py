"""A ReduceLROnPlateau of which all workers have the same rates, though each would measure something else.

    scheduler.step(loss)      the worker that decides     makes the step, and shares state and factor
                              the others                  nothing: their own measurement does not count
    pace.step(), close()      the others                  take over what was shared last

The factor is that of the rates since the beginning, so workers may have rates of their own, and one that comes later
gets all reductions at once. A worker that decides after another one goes on from its state.
"""

from __future__ import annotations

import weakref
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from paceline.core.errors import ConfigError
from paceline.runtime.worker.sharing.shared_values import SharedValues

STATE = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")
"""What a scheduler remembers of its measurements."""


class SharedPlateau:
    """Keeps the rates of one scheduler the same on all workers."""

    def __init__(self, scheduler: Any, values: SharedValues, name: str) -> None:
        """`name`: under which the workers share it. Raises ConfigError for another kind of scheduler."""
        if not isinstance(scheduler, ReduceLROnPlateau):
            raise ConfigError(f"pace.plateau takes a ReduceLROnPlateau; {type(scheduler).__name__}: pace.scheduler")
        self._scheduler, self._values, self._name = scheduler, values, name
        self._factors = [1.0 for _ in scheduler.optimizer.param_groups]
        _become_shared(scheduler, self)

    def step(self, metrics: Any, epoch: int | None) -> None:
        """Makes a step of the scheduler where this worker decides."""
        self.follow()
        if self._values.ended:
            _plain_step(self._scheduler, metrics, epoch)
        elif self._values.decides:
            self._decide(metrics, epoch)

    def _decide(self, metrics: Any, epoch: int | None) -> None:
        """Makes the step, and shares what has become of state and rates."""
        groups = self._scheduler.optimizer.param_groups
        before = [float(group["lr"]) for group in groups]
        _plain_step(self._scheduler, metrics, epoch)
        for n, (group, rate) in enumerate(zip(groups, before, strict=True)):
            self._factors[n] *= float(group["lr"]) / rate if rate else 1.0
        state = {key: float(getattr(self._scheduler, key)) for key in STATE}
        self._values.share(self._name, {"state": state, "factors": self._factors})

    def follow(self) -> None:
        """Takes over what was shared last. It is called before each step of training."""
        shared = self._values.get(self._name, None)
        if self._values.ended or shared is None or len(shared["factors"]) != len(self._factors):
            return
        for key, value in shared["state"].items():
            setattr(self._scheduler, key, value if key == "best" else int(value))
        if shared["factors"] != self._factors:
            groups = self._scheduler.optimizer.param_groups
            for group, factor, own in zip(groups, shared["factors"], self._factors, strict=True):
                group["lr"] = group["lr"] * (factor / own)
            self._factors = shared["factors"]
            self._scheduler._last_lr = [group["lr"] for group in groups]

    def scale(self, ratio: float) -> None:
        """Multiplies the least rates, as the rates themselves were."""
        self._scheduler.min_lrs = [least * ratio for least in self._scheduler.min_lrs]


_shared: weakref.WeakKeyDictionary[ReduceLROnPlateau, SharedPlateau] = weakref.WeakKeyDictionary()
"""Not on the schedulers themselves, whose attributes are their `state_dict`."""
_kinds: dict[type, type] = {}


def _become_shared(scheduler: ReduceLROnPlateau, plateau: SharedPlateau) -> None:
    """Lets `scheduler.step` ask `plateau`. It stays a scheduler of its own class, as frameworks ask for that."""
    own = _kinds.get(type(scheduler)) or type(scheduler)
    if own not in _kinds.values():
        own = _kinds[own] = type(own.__name__, (own,), {"step": _asking_step})
    scheduler.__class__ = own
    _shared[scheduler] = plateau


def _asking_step(scheduler: ReduceLROnPlateau, metrics: Any, epoch: int | None = None) -> None:
    """Stands for the scheduler's `step`."""
    _shared[scheduler].step(metrics, epoch)


def _plain_step(scheduler: ReduceLROnPlateau, metrics: Any, epoch: int | None) -> None:
    """Makes a step as the scheduler's own class does."""
    plain: Any = type(scheduler).__mro__[1]
    plain.step(scheduler, metrics, *(() if epoch is None else (epoch,)))
