"""What Lightning's callbacks decide: worker 0 decides, and all workers end with the same.

    callback           worker 0                             the others
    EarlyStopping      checks, as alone                     check nothing, unless worker 0 is gone
    ModelCheckpoint    saves, as alone                      save nothing; which checkpoint is the best, or the last, is
                                                            what worker 0 has
An epoch in which a worker had no batch, as a slow one may have, has no validation, and nothing to check.

Worker 0 shares the state of these callbacks after each validation and at the end, and the others take it over. A
worker that is started again begins with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from paceline.runtime.worker.pace import Pace

CHECKS = ((EarlyStopping, "_should_skip_check"), (ModelCheckpoint, "_should_skip_saving_checkpoint"))
"""By kind of callback: the method by which it is asked whether it does nothing now."""
KEPT_MAX = 50
"""Kept checkpoints that are shared by name; of more the best one only."""


class CallbackDecisions:
    """Keeps the deciding callbacks of one trainer the same on all workers."""

    def __init__(self) -> None:
        self._pace: Pace | None = None
        self._callbacks: list[Any] = []
        self._held: list[tuple[Callback, str]] = []
        self._checked: dict[Callback, int] = {}  # the worker's steps when a callback checked last

    def begin(self, trainer: Trainer, pace: Pace) -> None:
        """Lets the callbacks of `trainer` decide by the rank of this worker, and take over what was decided before."""
        self._pace = pace
        self._callbacks = [each for each in trainer.callbacks if isinstance(each, (EarlyStopping, ModelCheckpoint))]
        for callback in self._callbacks:
            kind, name = next((kind, name) for kind, name in CHECKS if isinstance(callback, kind))
            of_kind = self._skips_check if kind is EarlyStopping else self._skips_saving
            setattr(callback, name, functools.partial(of_kind, callback, getattr(callback, name)))
            self._held.append((callback, name))
        for number, callback in enumerate(self._callbacks):
            _load(callback, pace.shared(_name(number)))

    def _skips_check(self, callback: Callback, skips: Callable[[Trainer], bool], trainer: Trainer) -> bool:
        """Returns True if EarlyStopping has nothing to do now."""
        assert self._pace is not None
        if skips(trainer) or not self._pace.decides or self._checked.get(callback, 0) == trainer.global_step:
            return True
        self._checked[callback] = trainer.global_step
        return False

    def _skips_saving(self, callback: Callback, skips: Callable[[Trainer], bool], trainer: Trainer) -> bool:
        """Returns True if ModelCheckpoint has nothing to do now."""
        assert self._pace is not None
        return skips(trainer) or self._pace.rank > 0

    def share(self) -> None:
        """Shares what the callbacks of worker 0 have decided."""
        if self._pace is not None and self._pace.rank == 0:
            for number, callback in enumerate(self._callbacks):
                self._pace.share(_name(number), _state(callback))

    def take(self) -> None:
        """Takes over what worker 0 has decided, as far as it has arrived."""
        if self._pace is not None and self._pace.rank > 0:
            for number, callback in enumerate(self._callbacks):
                _load(callback, self._pace.shared(_name(number)))

    def end(self) -> None:
        """Takes over the last decisions, and gives the callbacks back to the trainer."""
        self.take()
        for callback, name in self._held:
            delattr(callback, name)
        self._held, self._callbacks, self._pace = [], [], None


def _name(number: int) -> str:
    return f"Lightning's callback {number}"


def _state(callback: EarlyStopping | ModelCheckpoint) -> dict[str, Any]:
    """Returns the state of a callback, with numbers in place of tensors."""
    state = dict(callback.state_dict())
    if len(kept := state.get("best_k_models", {})) > KEPT_MAX:
        state["best_k_models"] = {path: score for path, score in kept.items() if path == state["best_model_path"]}
    return {key: _plain(value) for key, value in state.items()}


def _load(callback: Any, state: dict[str, Any] | None) -> None:
    """Gives a callback the state that `_state` returned."""
    if state is None:
        return
    state = {key: _tensors(value) for key, value in state.items()}
    if isinstance(callback, ModelCheckpoint):
        callback.dirpath = state["dirpath"]
        callback.current_score = state["current_score"]
    callback.load_state_dict(state)


def _plain(value: Any) -> Any:
    """Returns what JSON can have: a tensor of one number is {"tensor": number}."""
    if isinstance(value, torch.Tensor):
        return {"tensor": float(value)}
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def _tensors(value: Any) -> Any:
    """Returns what `_plain` was given."""
    if not isinstance(value, dict):
        return value
    if set(value) == {"tensor"}:
        return torch.tensor(value["tensor"])
    return {key: _tensors(each) for key, each in value.items()}
