"""What a script calls: the methods of MXNet's KVStore, on tensors of torch. How they are carried out is below.

Sums, never means. A worker's requests about a key take effect in the order in which it made them: a pull after a push
of the same worker sees that push. Nothing is promised about the order of different keys or workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from paceline.codec.codec import lookup
from paceline.core.errors import ConfigError
from paceline.job.kvstore.files import KeyStates, load_states, save_states
from paceline.job.kvstore.places import Key
from paceline.job.kvstore.updater import Updater, updater_of
from paceline.job.kvstore.values import AnyVector, Keys, keys_of, paired, tensors_of, total, vectors_of, write

Shape = tuple[int, ...]


class KVStore(ABC):
    """Values by key, kept in float32; float16 and bfloat16 are taken and given, too.

    All methods raise ConfigError for wrong use, and those that wait TimedOut, naming for whom.
    """

    rank = 0
    num_workers = 1

    def __init__(self, type: str) -> None:
        self.type = type
        self._on_device = "device" in type
        self._shapes: dict[Key, Shape] = {}
        self._kinds: dict[Key, torch.dtype] = {}
        self._updater: Updater | None = None

    @property
    def num_dead_nodes(self) -> int:
        """Workers that went away without a good-bye."""
        return 0

    # ---- values ------------------------------------------------------------------------------------------
    def init(self, key: Keys, value: Any) -> None:
        """Once for each key, before anything else, on all workers. Rank 0's value counts; returns when it is there."""
        firsts = {}
        for one, given in paired(key, value, "value"):
            if one in self._shapes:
                raise ConfigError(f"key {one!r} has its first value already: init comes once, push changes it")
            first = tensors_of(one, given)[0].detach()
            firsts[one] = first if first.layout == torch.strided else first.to_dense()
        self._begin(firsts)
        self._shapes.update({one: tuple(first.shape) for one, first in firsts.items()})
        self._kinds.update({one: first.dtype for one, first in firsts.items()})

    def push(self, key: Keys, value: Any, priority: int = 0) -> None:
        """Add `value` to the key's next update; several tensors (one a device) are summed up first. Does not wait.

        Without an optimizer the sum of all workers takes the value's place. `priority` is taken and has no effect, here
        and in all calls, as between machines in MXNet: requests leave in the order of the calls.
        """
        self._push(self._vectors(key, value))

    def pull(self, key: Keys, out: Any = None, priority: int = 0) -> Any:
        """The value, after this worker's pushes of the key: written into `out`, or returned where there is none."""
        values = self._pull(self._known(key))
        return self._handed_out(key, values, out)

    def pushpull(self, key: Keys, value: Any, out: Any = None, priority: int = 0) -> None:
        """Both in one message; without `out` the result is written over `value`."""
        targets = value if out is None else out
        vectors = self._vectors(key, value)
        paired(key, targets, "out")
        self._handed_out(key, self._pushpull(vectors), targets)

    def broadcast(self, key: Keys, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`: rank 0's value everywhere."""
        self.init(key, value)
        self.pull(key, out)

    def row_sparse_pull(self, key: Key, out: Tensor | None = None, priority: int = 0, *, row_ids: Tensor) -> Any:
        """Only these rows of a table, each once: written into those rows of `out`, or returned as a sparse tensor."""
        one = self._known(key)[0]
        shape = self._shapes[one]
        rows = torch.unique(torch.as_tensor(row_ids).detach().cpu().to(torch.int64))
        if len(shape) != 2:
            raise ConfigError(f"key {one!r} has the shape {shape}: only tables, of two dimensions, have rows")
        if len(rows) and not 0 <= int(rows[0]) <= int(rows[-1]) < shape[0]:
            raise ConfigError(f"key {one!r}: its rows go from 0 to {shape[0] - 1}")
        values = self._pull_rows(one, rows).view(-1, shape[1])
        if out is None:
            values = values.to(self._kinds[one], copy=True)
            return torch.sparse_coo_tensor(rows[None], values, shape, is_coalesced=True, check_invariants=False)
        target = tensors_of(one, out, shape)[0]
        with torch.no_grad():
            target[rows.to(target.device)] = values.to(target)
        return None

    # ---- what holds for all keys -------------------------------------------------------------------------
    def set_optimizer(self, optimizer: Any, *, rescale_grad: float = 1.0, **numbers: Any) -> None:
        """From the next update on: by name and numbers ("sgd", lr=0.1), or an optimizer of torch's, read for its own.

        It lives where the values are. `rescale_grad` is multiplied with each sum: 1 / (batch size, num_workers times).
        """
        updater = updater_of(optimizer, numbers, rescale_grad=rescale_grad)
        self._use(updater)
        self._updater = updater

    def set_learning_rate(self, lr: float) -> None:
        """Of the optimizer, from the next update on; rank 0's counts."""
        if self._updater is None:
            raise ConfigError("there is no optimizer that has a learning rate: call set_optimizer first")
        if not lr >= 0:
            raise ConfigError(f"lr = {lr}: must be 0 or more")
        self._set_rate(float(lr))

    def set_gradient_compression(self, compression: Mapping[str, Any]) -> None:
        """`{"type": "2bit", "threshold": 0.5}`, or any other codec with its parameters; before the first `init`."""
        numbers = dict(compression)
        name = str(numbers.pop("type", ""))
        if self.type == "local":
            raise ConfigError("a local store sends nothing that could be compressed: use device or a dist_* store")
        if self._shapes:
            raise ConfigError("set_gradient_compression comes before the first init")
        try:
            codec = lookup(name)(**numbers)
        except TypeError:
            raise ConfigError(f"codec {name} has no such parameters: {', '.join(numbers)}") from None
        if codec.for_means:
            raise ConfigError(f"{name} needs means of matrices, which a store does not take: try topk or 2bit")
        self._compress(str(codec))

    def save_optimizer_states(self, fname: str | Path) -> None:
        """Into a safetensors file; rank 0 writes it, other ranks do nothing. It fits any number of servers."""
        if self.rank == 0:
            save_states(Path(fname), self._needs_updater(), {key: self._states(key) for key in self._shapes})

    def load_optimizer_states(self, fname: str | Path) -> None:
        """From `save_optimizer_states`, once the same keys are there; rank 0 loads it, other ranks do nothing."""
        if self.rank == 0:
            for key, states in load_states(Path(fname), self._needs_updater(), list(self._shapes)).items():
                self._load_states(key, states)

    @abstractmethod
    def barrier(self) -> None:
        """Returns when all workers have come here. Says nothing about their pushes."""

    @abstractmethod
    def close(self) -> None:
        """Take no further part."""

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon(f"worker {self.rank}: {error if str(error) else kind.__name__}")

    @abstractmethod
    def abandon(self, cause: str) -> None:
        """Tell the others that this worker failed."""

    # ---- checks ------------------------------------------------------------------------------------------
    def _known(self, key: Keys) -> list[Key]:
        keys = keys_of(key)
        for one in keys:
            if one not in self._shapes:
                raise ConfigError(f"key {one!r} has no value yet: call init for it first, on all workers")
        return keys

    def _vectors(self, key: Keys, value: Any) -> dict[Key, list[AnyVector]]:
        self._known(key)
        pairs = paired(key, value, "value")
        return {one: vectors_of(one, given, self._shapes[one], on_device=self._on_device) for one, given in pairs}

    def _summed(self, vectors: dict[Key, list[AnyVector]]) -> dict[Key, AnyVector]:
        return {key: total(given) for key, given in vectors.items()}

    def _handed_out(self, key: Keys, values: Sequence[Tensor], out: Any) -> Any:
        shaped = [v.view(self._shapes[one]) for one, v in zip(keys_of(key), values, strict=True)]
        if out is None:
            copies = [v.to(self._kinds[one], copy=True) for one, v in zip(keys_of(key), shaped, strict=True)]
            return copies if isinstance(key, list | tuple) else copies[0]
        for (one, target), value in zip(paired(key, out, "out"), shaped, strict=True):
            write(one, target, value)
        return None

    def _needs_updater(self) -> Updater:
        if self._updater is None:
            raise ConfigError("there is no optimizer whose states could be saved or loaded: call set_optimizer first")
        return self._updater

    # ---- how it is carried out ---------------------------------------------------------------------------
    @abstractmethod
    def _begin(self, firsts: Mapping[Key, Tensor]) -> None: ...
    @abstractmethod
    def _push(self, vectors: dict[Key, list[AnyVector]]) -> None: ...
    @abstractmethod
    def _pull(self, keys: Sequence[Key]) -> list[Tensor]:
        """Flat; nobody may change them."""

    @abstractmethod
    def _pushpull(self, vectors: dict[Key, list[AnyVector]]) -> list[Tensor]: ...
    @abstractmethod
    def _pull_rows(self, key: Key, rows: Tensor) -> Tensor:
        """`rows` rise, and are there."""

    @abstractmethod
    def _use(self, updater: Updater) -> None: ...
    @abstractmethod
    def _set_rate(self, lr: float) -> None: ...
    @abstractmethod
    def _compress(self, codec: str) -> None: ...
    @abstractmethod
    def _states(self, key: Key) -> KeyStates: ...
    @abstractmethod
    def _load_states(self, key: Key, states: KeyStates) -> None: ...
