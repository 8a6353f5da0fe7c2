"""Stores of type `local` and `device` are in one process, without a server.

They sum the tensors of several devices, on the host or where the first tensor is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.codec.base import ResidualMemory
from paceline.compat.mxnet.api import KVStore
from paceline.compat.mxnet.arguments import AnyVector, total
from paceline.compat.mxnet.state_files import KeyStates
from paceline.core.errors import ConfigError
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.vectors.flat import Flat, on_host
from paceline.runtime.kvstore.messages import PutState
from paceline.runtime.kvstore.optimizer_state import put_together, taken_apart
from paceline.runtime.kvstore.optimizers import Updater
from paceline.runtime.kvstore.placement import Key
from paceline.runtime.kvstore.rows import numbers_of, rows_of, table_of, whole


class LocalStore(KVStore):
    """Makes every push an update, which is done when the call returns."""

    def __init__(self, type: str) -> None:
        super().__init__(type)
        self._values: dict[Key, Any] = {}
        self._rules: dict[Key, Any] = {}
        self._lr: float | None = None  # set after the optimizer was
        self._left: dict[tuple[Key, int], ResidualMemory] = {}  # residuals, by key and device

    def _begin(self, firsts: Mapping[Key, Tensor]) -> None:
        for key, first in firsts.items():
            self._values[key] = Flat.copy_of(first if self._on_device else first.cpu())
            if self._updater:
                self._rules[key] = self._updater.make_rule()
            if self._lr is not None:
                self._rules[key].set_lr(self._lr)

    def _push(self, vectors: dict[Key, list[AnyVector]]) -> None:
        for key, given in vectors.items():
            g, w = total([self._as_sent(key, device, v) for device, v in enumerate(given)]), self._values[key]
            rule = self._rules.get(key)
            if rule is None or self._updater is None:
                self._values[key] = g
            else:
                w = table_of(w, g) if rule.by_rows else whole(w)
                self._values[key] = rule(w, g * self._updater.rescale, 0)

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
        self._rules, self._lr = {key: updater.make_rule() for key in self._values}, None

    def _set_rate(self, lr: float) -> None:
        self._lr = lr
        for rule in self._rules.values():
            rule.set_lr(lr)

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
