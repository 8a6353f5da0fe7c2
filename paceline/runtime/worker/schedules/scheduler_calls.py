"""Notices when a loop calls `step()` of a torch scheduler, wherever the loop has it from.

A scheduler is made before `join` or after it, by the user or by a framework, and nobody passes it on. What it always
has is its optimizer. So while a worker is in a run, `step` of torch's scheduler classes asks first whether somebody
watches the optimizer, and is the plain one for everybody else. Classes are changed and not the schedulers, since what
lies on a scheduler is in its `state_dict`.

    scheduler.step()  of an optimizer that is watched     `called(scheduler)` decides how many steps it makes
    the step within its constructor                       `made(scheduler)`, and the plain step
    steps that a scheduler makes of its parts             the plain step
    scheduler.step(epoch)                                 the plain step: the loop says the position itself
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau


class Watcher(Protocol):
    """Is asked about the schedulers of some optimizers."""

    optimizers: Sequence[torch.optim.Optimizer]

    def called(self, scheduler: Any) -> None:
        """The loop has called `scheduler.step()`, which does nothing else."""

    def made(self, scheduler: Any) -> None:
        """`scheduler` was made just now."""


class _Here(threading.local):
    """Says of a thread whether a scheduler is making its steps there."""

    stepping = False


_here = _Here()
_lock = threading.Lock()
_watchers: list[Watcher] = []
_plain: dict[tuple[type, str], tuple[Any, Any]] = {}
"""By class and name: its own method, and the one that stands in its place."""


def watch(watcher: Watcher) -> None:
    """Lets `watcher` decide about the schedulers of its optimizers, until `unwatch`."""
    with _lock:
        _watchers.append(watcher)
        _replace(LRScheduler, "_initial_step", _noting)
        for each in _classes(LRScheduler):
            _replace(each, "step", _asking)


def unwatch(watcher: Watcher) -> None:
    """Ends that. With the last watcher the classes are torch's own again."""
    with _lock:
        _watchers[:] = [each for each in _watchers if each is not watcher]
        if not _watchers:
            for (each, name), (plain, ours) in _plain.items():
                if vars(each).get(name) is ours:  # else somebody has changed it after us
                    setattr(each, name, plain)
            _plain.clear()


def make_step(scheduler: Any) -> None:
    """Makes one step of a scheduler; nobody is asked."""
    _undisturbed(scheduler.step)


def _replace(of: type, name: str, wrapped: Callable[[Any], Any]) -> None:
    """Replaces a method that the class itself has."""
    if name in vars(of) and (of, name) not in _plain:
        plain = vars(of)[name]
        _plain[of, name] = plain, wrapped(plain)
        setattr(of, name, _plain[of, name][1])


def _classes(of: type[LRScheduler]) -> list[type[LRScheduler]]:
    """Returns the class and all that derive from it, but for schedulers that go by a measurement."""
    if of is ReduceLROnPlateau:
        return []
    return [of, *(each for derived in of.__subclasses__() for each in _classes(derived))]


def _asking(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `step` as it is while somebody watches."""

    @functools.wraps(plain)
    def step(self: Any, *args: Any, **named: Any) -> Any:
        watcher = None if _here.stepping or args or named else _watcher_of(self)
        return _undisturbed(plain, self, *args, **named) if watcher is None else watcher.called(self)

    return step


def _noting(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the step within a constructor as it is while somebody watches."""

    @functools.wraps(plain)
    def initial_step(self: Any) -> None:
        _undisturbed(plain, self)
        watcher = _watcher_of(self)
        if watcher is not None:
            watcher.made(self)

    return initial_step


def _undisturbed(act: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Calls what makes steps of a scheduler or of its parts; nobody is asked."""
    before, _here.stepping = _here.stepping, True
    try:
        return act(*args, **named)
    finally:
        _here.stepping = before


def _watcher_of(scheduler: Any) -> Watcher | None:
    """Returns who watches the optimizer of a scheduler.

    Frameworks wrap optimizers, and `pace.optimizer` is a wrapper too; all of them have the list of groups of the
    original, which is what a scheduler changes.
    """
    groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", None)
    if groups is None:
        return None
    for watcher in tuple(_watchers):
        if any(groups is optimizer.param_groups for optimizer in watcher.optimizers):
            return watcher
    return None
