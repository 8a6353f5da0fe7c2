"""Stores of type `local` and `device`, under all of MXNet's names for them, are in one process, without a server.

They sum the tensors of several devices, on the host or where the first tensor is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.codec.base import ResidualMemory
from paceline.compat.mxnet.api import KVStore, OwnUpdater
from paceline.compat.mxnet.arguments import AnyVector, total
from paceline.compat.mxnet.state_files import KeyStates
from paceline.core.errors import ConfigError
from paceline.engine.optim.optimizers import ServerOptimizer
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.vectors.flat import Flat, on_host
from paceline.runtime.kvstore.messages import PutState
from paceline.runtime.kvstore.optimizer_state import put_together, taken_apart
from paceline.runtime.kvstore.optimizers import Updater
from paceline.runtime.kvstore.placement import Key, text_of
from paceline.runtime.kvstore.rows import numbers_of, rows_of, table_of, whole


class LocalStore(KVStore):
    """Makes every push an update, which is done when the call returns."""

    def __init__(self, type: str) -> None:
        super().__init__(type)
        self._values: dict[Key, Any] = {}
        self._rules: dict[Key, Any] = {}
        self._lr: float | None = None  # set after the optimizer was
        self._own_updater: OwnUpdater | None = None
        self._left: dict[tuple[Key, int], ResidualMemory] = {}  # residuals, by key and device

    def _begin(self, firsts: Mapping[Key, Tensor]) -> None:
        for key, first in firsts.items():
            self._values[key] = Flat.copy_of(first if self._on_device else first.cpu())
            if self._updater:
                self._rules[key] = self._rule_of(key, self._updater)

    def _push(self, vectors: dict[Key, list[AnyVector]]) -> None:
        for key, given in vectors.items():
            g, w = total([self._as_sent(key, device, v) for device, v in enumerate(given)]), self._values[key]
            rule = self._rules.get(key)
            if self._own_updater is not None:
                self._values[key] = self._updated(self._own_updater, key, g)
            elif rule is None or self._updater is None:
                self._values[key] = g
            else:
                w = table_of(w, g) if rule.by_rows else whole(w)
                self._values[key] = rule(w, g * self._updater.rescale, 0)

    def _updated(self, updater: OwnUpdater, key: Key, g: AnyVector) -> Flat:
        """Returns the value that the script's own updater makes of the sum `g`: it writes over a copy."""
        shape = self._shapes[key]
        stored = whole(self._values[key]).value().clone().view(shape)
        updater(key, whole(g).value().clone().view(shape), stored)
        return Flat.copy_of(stored)

    def _as_sent(self, key: Key, device: int, v: AnyVector) -> AnyVector:
        """Encodes and decodes `v`, as if it were sent; MXNet, too, compresses the gradient of every device."""
        if self._codec is None or isinstance(v, SparseFlat):
            return v
        memory = self._left.setdefault((key, device), ResidualMemory.of(len(v)))
        data = self._codec.encode(on_host(v).numpy(), memory)
        if data is None:  # infinite numbers, or NaN, go as they are, so that the script sees them
            return v
        out = np.empty(len(v), np.float32)
        self._codec.decode(data, out)
        return Flat.wrap(torch.from_numpy(out).to(v.device))

    def _pull(self, keys: Sequence[Key]) -> list[Tensor]:
        return [whole(self._values[key]).value() for key in keys]

    def _pushpull(self, vectors: dict[Key, list[AnyVector]]) -> list[Tensor]:
        self._push(vectors)
        return self._pull(list(vectors))

    def _pull_rows(self, key: Key, rows: Tensor) -> Tensor:
        return rows_of(self._values[key], numbers_of(rows), self._shapes[key][1]).value()

    # ---- what holds for all keys -------------------------------------------------------------------------
    def _use(self, updater: Updater) -> None:
        self._lr, self._own_updater = None, None
        self._rules = {key: self._rule_of(key, updater) for key in self._values}

    def _rule_of(self, key: Key, updater: Updater) -> ServerOptimizer:
        """Returns a new rule of the key, with the learning rate that was set since the optimizer was."""
        rule = updater.rule_of(text_of(key))
        if self._lr is not None:
            rule.set_lr(self._lr * updater.lr_mult.get(text_of(key), 1.0))
        return rule

    def _set_rate(self, lr: float) -> None:
        self._lr = lr
        mults = self._updater.lr_mult if self._updater is not None else {}
        for key, rule in self._rules.items():
            rule.set_lr(lr * mults.get(text_of(key), 1.0))

    def _set_updater(self, updater: OwnUpdater) -> None:
        if not callable(updater):
            raise ConfigError(f"_set_updater takes a function of key, sum and stored value, not {updater!r}")
        self._own_updater = updater

    def _compress(self, codec: str) -> None:
        """Does nothing: KVStore keeps the codec, and `_as_sent` uses it."""

    def _states(self, key: Key) -> KeyStates:
        numbers, single, tensors = taken_apart(self._rules[key].state())
        return KeyStates(numbers=numbers, single=single, tensors={n: v.value().cpu() for n, v in tensors.items()})

    def _load_states(self, key: Key, states: KeyStates) -> None:
        said = PutState(numbers=states.numbers, single=states.single, names=tuple(states.tensors))
        tensors = {name: Flat.copy_of(v) for name, v in states.tensors.items()}
        shape = self._shapes[key]
        width = shape[1] if len(shape) == 2 else 0
        try:
            self._rules[key].load_state(put_together(said, tensors, len(whole(self._values[key])), width))
        except (KeyError, ValueError) as error:
            raise ConfigError(f"key {key!r}: the states are those of another optimizer ({error})") from None

    # ---- together ----------------------------------------------------------------------------------------
    def barrier(self) -> None:
        """Returns at once: there is one worker."""

    def close(self) -> None:
        """Does nothing: there is no run to leave."""

    def abandon(self, cause: str, *, lost_another: bool = False) -> None:
        """Does nothing: there is nobody to tell."""
