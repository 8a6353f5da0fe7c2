"""Defines the methods of MXNet's KVStore, on tensors of torch; subclasses carry them out.

Gradients are summed, never averaged. A worker's requests about a key take effect in the order in which it made them: a
pull after a push of the same worker sees that push. The order of different keys or workers is undefined.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from paceline.codec.base import Codec, lookup
from paceline.compat.mxnet.arguments import (
    AnyVector,
    Keys,
    grouped,
    keys_of,
    paired,
    row_numbers,
    spread,
    tensors_of,
    total,
    vectors_of,
    write,
    write_sparse,
)
from paceline.compat.mxnet.state_files import KeyStates, load_states, save_states
from paceline.core.errors import ConfigError, PeerLost, ends_well
from paceline.runtime.kvstore.optimizers import Updater, updater_of
from paceline.runtime.kvstore.placement import Key

Shape = tuple[int, ...]
OwnUpdater = Callable[[Key, Tensor, Tensor], object]
"""Called with a key, the sum that was pushed, and the stored value, over which it writes the new one."""


class KVStore(ABC):
    """A store keeps values by key in float32; it accepts and returns float16 and bfloat16, too.

    All methods raise ConfigError for wrong use. Those that wait raise TimedOut, which names for whom.
    """

    rank = 0
    num_workers = 1

    def __init__(self, type: str) -> None:
        self.type = type
        self._on_device = "device" in type or type == "nccl"
        self._shapes: dict[Key, Shape] = {}
        self._kinds: dict[Key, torch.dtype] = {}
        self._updater: Updater | None = None
        self._codec: Codec | None = None

    @property
    def num_dead_nodes(self) -> int:
        """Returns the number of workers that failed."""
        return 0

    # ---- values ------------------------------------------------------------------------------------------
    def init(self, key: Keys, value: Any) -> None:
        """Sets the first value of a key; all workers call this once, rank 0's value counts. Returns when it is set."""
        firsts = {}
        self._of_one_kind(keys_of(key))
        for one, given in paired(key, value, "value"):
            if one in firsts:
                raise ConfigError(f"key {one!r} is in the list twice: it has one first value")
            if one in self._shapes:
                raise ConfigError(f"key {one!r} has its first value already: init comes once, push changes it")
            first = tensors_of(one, given)[0].detach()
            firsts[one] = first if first.layout == torch.strided else first.to_dense()
        self._begin(firsts)
        self._shapes.update({one: tuple(first.shape) for one, first in firsts.items()})
        self._kinds.update({one: first.dtype for one, first in firsts.items()})

    def push(self, key: Keys, value: Any, priority: int = 0) -> None:
        """Adds `value` to the key's next update, after summing several tensors (one a device). Does not wait.

        Without an optimizer the sum of all workers replaces the value. `priority` has no effect, here and in all calls,
        as between machines in MXNet: requests leave in the order of the calls.
        """
        self._push(self._vectors(key, value))

    def pull(self, key: Keys, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> Any:
        """Writes the value, after this worker's pushes of the key, into `out`; without `out` it is returned.

        Sparse tensors of `out` are left as they are, unless `ignore_sparse` is False.
        """
        keys = list(dict.fromkeys(self._known(key)))
        return self._handed_out(key, dict(zip(keys, self._pull(keys), strict=True)), out, ignore_sparse=ignore_sparse)

    def pushpull(self, key: Keys, value: Any, out: Any = None, priority: int = 0) -> None:
        """Pushes and pulls in one message; without `out` the result overwrites `value`."""
        targets = value if out is None else out
        vectors = self._vectors(key, value)
        paired(key, targets, "out")
        self._handed_out(key, dict(zip(vectors, self._pushpull(vectors), strict=True)), targets)

    def broadcast(self, key: Keys, value: Any, out: Any, priority: int = 0) -> None:
        """Calls `init`, then `pull`, so that all workers have rank 0's value."""
        self.init(key, value)
        self.pull(key, out)

    def row_sparse_pull(self, key: Keys, out: Any = None, priority: int = 0, *, row_ids: Any) -> Any:
        """Pulls only these rows of a table, each once, into those rows of `out`, or returns a sparse tensor.

        A sparse tensor of `out` has these rows only afterwards; other rows of a dense one stay as they are.

        With several keys, or several tensors for `out`, `row_ids` is one tensor for all or a list of as many.
        """
        keys, several = self._known(key), isinstance(key, list | tuple)
        outs = [None] * len(keys) if out is None else [given for _, given in paired(key, out, "out")]
        of_each = spread(row_ids, len(keys), "row_ids") if several else [row_ids]
        pulled = [self._rows_into(*one) for one in zip(keys, outs, of_each, strict=True)]
        return None if out is not None else pulled if several else pulled[0]

    def _rows_into(self, key: Key, out: Any, row_ids: Any) -> Tensor | None:
        """Pulls the rows of one key into `out`; returns them as a sparse tensor where `out` is None."""
        shape = self._shapes[key]
        if len(shape) != 2:
            raise ConfigError(f"key {key!r} has the shape {shape}: only tables, of two dimensions, have rows")
        if out is None:
            return self._sparse_rows(key, row_numbers(key, row_ids, shape[0]))
        targets = tensors_of(key, out, shape)
        of_each = [row_numbers(key, ids, shape[0]) for ids in spread(row_ids, len(targets), "row_ids")]
        for target, rows in zip(targets, of_each, strict=True):
            with torch.no_grad():
                if target.layout != torch.strided:
                    write_sparse(key, target, self._sparse_rows(key, rows))
                else:
                    target[rows.to(target.device)] = self._pull_rows(key, rows).view(-1, shape[1]).to(target)
        return None

    def _sparse_rows(self, key: Key, rows: Tensor) -> Tensor:
        """Returns these rows of a table as a sparse tensor."""
        shape = self._shapes[key]
        values = self._pull_rows(key, rows).view(-1, shape[1]).to(self._kinds[key], copy=True)
        return torch.sparse_coo_tensor(rows[None], values, shape, is_coalesced=True, check_invariants=False)

    # ---- what holds for all keys -------------------------------------------------------------------------
    def set_optimizer(
        self,
        optimizer: Any,
        *,
        rescale_grad: float = 1.0,
        lr_mult: Mapping[Key, float] | None = None,
        wd_mult: Mapping[Key, float] | None = None,
        **numbers: Any,
    ) -> None:
        """Sets the optimizer for the next updates: a name and numbers ("sgd", lr=0.1), or an optimizer of torch.

        Its state is where the values are. `rescale_grad` multiplies each sum: 1 / (batch size * num_workers) is a mean.
        `lr_mult` and `wd_mult` multiply the learning rate and the weight decay of single keys.
        """
        updater = updater_of(optimizer, numbers, rescale_grad=rescale_grad, lr_mult=lr_mult, wd_mult=wd_mult)
        if self._codec is not None:
            self._codec.check(_momentum_of(updater), local=False)
        self._use(updater)
        self._updater = updater

    def set_learning_rate(self, lr: float) -> None:
        """Sets the optimizer's learning rate for the next updates; rank 0's call counts."""
        if self._updater is None:
            raise ConfigError("there is no optimizer that has a learning rate: call set_optimizer first")
        if not isinstance(lr, int | float) or not 0 <= lr < math.inf:
            raise ConfigError(f"lr = {lr!r}: must be a number, 0 or more")
        self._set_rate(float(lr))

    def set_gradient_compression(self, compression: Mapping[str, Any]) -> None:
        """Sets a codec before the first `init`: `{"type": "2bit", "threshold": 0.5}`, or any other."""
        if not isinstance(compression, Mapping) or not compression.get("type"):
            raise ConfigError(f'compression = {compression!r}: give the name of a codec, as {{"type": "2bit"}}')
        numbers = dict(compression)
        name = str(numbers.pop("type"))
        if "device" not in self.type and "dist" not in self.type:
            raise ConfigError("a local store sends nothing that could be compressed: use device or a dist_* store")
        if self._shapes:
            raise ConfigError("set_gradient_compression comes before the first init")
        try:
            codec = lookup(name)(**numbers)
        except TypeError:
            raise ConfigError(f"codec {name} has no such parameters: {', '.join(numbers)}") from None
        if codec.for_means:
            raise ConfigError(f"{name} needs means of matrices, which a store does not take: try topk or 2bit")
        # The optimizer may come before the codec or after it: `set_optimizer` checks the pair, too.
        codec.check(_momentum_of(self._updater), local=False)
        self._compress(str(codec))
        self._codec = codec

    def save_optimizer_states(self, fname: str | Path) -> None:
        """Writes a safetensors file, on rank 0 only. It fits any number of servers."""
        if self.rank == 0:
            save_states(Path(fname), self._needs_updater(), {key: self._states(key) for key in self._shapes})

    def load_optimizer_states(self, fname: str | Path) -> None:
        """Loads what `save_optimizer_states` wrote, on rank 0 only; the same keys must be there."""
        if self.rank == 0:
            for key, states in load_states(Path(fname), self._needs_updater(), list(self._shapes)).items():
                self._load_states(key, states)

    def _set_updater(self, updater: OwnUpdater) -> None:
        """Makes updates by a function of the script's own, in a local store only. Raises ConfigError in others."""
        raise ConfigError(f"{self.type}: a function of your own cannot run on the servers: call set_optimizer")

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Returns True for "optimizer": every store updates its values, if an optimizer is set."""
        return capability.lower() == "optimizer"

    def _barrier(self) -> None:
        """MXNet's name of `barrier`."""
        self.barrier()

    @abstractmethod
    def barrier(self) -> None:
        """Returns when all workers have come here. Says nothing about their pushes."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the store; all workers call it at the end."""

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None or ends_well(error):
            self.close()
        else:
            cause = f"worker {self.rank}: {error if str(error) else kind.__name__}"
            self.abandon(cause, lost_another=isinstance(error, PeerLost))

    @abstractmethod
    def abandon(self, cause: str, *, lost_another: bool = False) -> None:
        """Tells the others that this worker failed; `lost_another`: because another party failed."""

    # ---- checks ------------------------------------------------------------------------------------------
    def _known(self, key: Keys) -> list[Key]:
        """Returns the keys. Raises ConfigError for one without a first value."""
        keys = keys_of(key)
        self._of_one_kind(keys)
        for one in keys:
            if one not in self._shapes:
                raise ConfigError(f"key {one!r} has no value yet: call init for it first, on all workers")
        return keys

    def _of_one_kind(self, keys: Sequence[Key]) -> None:
        """Raises ConfigError unless all keys, and those that the store has, are numbers, or all are strings."""
        kinds = {type(one) for one in (*keys, *itertools.islice(self._shapes, 1))}
        if len(kinds) > 1:
            odd = next(one for one in keys if type(one) is not type(next(iter(self._shapes), keys[0])))
            raise ConfigError(f"key {odd!r}: mixed key types: the keys of a store are all int, or all str")

    def _vectors(self, key: Keys, value: Any) -> dict[Key, list[AnyVector]]:
        """Returns the float32 vectors of each key, one a device."""
        self._known(key)
        given = grouped(key, value, "value")
        return {one: vectors_of(one, v, self._shapes[one], on_device=self._on_device) for one, v in given.items()}

    def _summed(self, vectors: dict[Key, list[AnyVector]]) -> dict[Key, AnyVector]:
        return {key: total(given) for key, given in vectors.items()}

    def _handed_out(self, key: Keys, values: Mapping[Key, Tensor], out: Any, *, ignore_sparse: bool = False) -> Any:
        """Writes the values into `out`, or returns copies in the type of each key's first value."""
        shaped = {one: v.view(self._shapes[one]) for one, v in values.items()}
        if out is None:
            copies = [shaped[one].to(self._kinds[one], copy=True) for one in keys_of(key)]
            return copies if isinstance(key, list | tuple) else copies[0]
        for one, target in grouped(key, out, "out").items():
            write(one, target, shaped[one], ignore_sparse=ignore_sparse)
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
        """Returns flat vectors, which nobody may change."""

    @abstractmethod
    def _pushpull(self, vectors: dict[Key, list[AnyVector]]) -> list[Tensor]: ...
    @abstractmethod
    def _pull_rows(self, key: Key, rows: Tensor) -> Tensor:
        """Returns the numbers of `rows`, which rise and are all in the table."""

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


def _momentum_of(updater: Updater | None) -> float:
    """Returns the optimizer's momentum; 0 where there is none. Some codecs must not be used with one."""
    momentum = updater.numbers.get("momentum") if updater is not None else None
    return float(momentum) if isinstance(momentum, int | float) else 0.0
