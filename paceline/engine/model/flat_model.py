"""`FlatModel` puts a module's trained parameters into one buffer and makes their gradients views of another.

What a scheme exchanges is then one tensor, and nothing on the hot path loops over parameters but a check that the views
are still in place (tens of nanoseconds each). The module stays the user's: forward, backward, `parameters()` and
`state_dict()` work as before.

This file has the weights: they are loaded, shown, and found unchanged without a look at them. `flat_gradients.py` has
the gradients.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_gradients import FlatGradients, views_of
from paceline.engine.model.lazy_load import LazyWeights, fit
from paceline.engine.model.low_precision import LowPrecision, keeps_its_memory
from paceline.engine.model.plain_names import compared
from paceline.engine.model.trainable import Rest, trained_of
from paceline.engine.sparse.embedding_gradients import SparseParameters
from paceline.engine.sparse.sparse_vector import AnyFlat, SparseFlat
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.chunked import ChunkedVector
from paceline.engine.vectors.flat import Flat

_version_of, _address_of = attrgetter("_version"), methodcaller("data_ptr")


def pieces_of(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns the same memory as `views_of`, but for torch each piece is a storage of its own, as long as itself.

    What is saved or copied of a module is then what a plain one has: a view would take the whole buffer along, and
    safetensors refuses such.
    """
    return [from_dlpack(view) if view.numel() else view for view in views_of(flat, tensors)]


def _numbers_of(p: Tensor) -> Tensor:
    """Returns the numbers of a parameter as a vector: those in memory, in their order there, unless it has gaps."""
    dense = p.is_contiguous() or torch.empty_like(p, device="meta").stride() == p.stride()
    return p.detach().as_strided((p.numel(),), (1,)) if dense else p.detach().flatten()


class FlatModel(FlatGradients):
    """Holds the trained part of `module` on `device` in flat form, in the order of `trained_of`, tied parameters once.

    optimizer: trained is what it holds and what requires a gradient (`paceline.engine.model.trainable`); None: all that
    requires one. The rest of the module stays as it is. Do not move or convert the module afterwards.

    Parameters of 16 bits, or of strides of their own, keep their memory; the buffer has their float32 masters
    (`paceline.engine.model.low_precision`).

    by_rows: gradients of `nn.Embedding(sparse=True)` stay sparse; `gradient()` then gives a SparseFlat. Otherwise, and
    always for local steps, they are as long as the table.

    Raises ConfigError as `trained_of` does.
    """

    in_ranks = False
    """Do several processes hold the model together (`paceline.engine.sharded`)?"""

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        *,
        optimizer: torch.optim.Optimizer | None = None,
        by_rows: bool = False,
    ) -> None:
        named = trained_of(module, optimizer)
        module.to(torch.device(device))
        self.rest = Rest(module, named)
        self.module = module
        self._names = tuple(named)
        parameters = list(named.values())
        edges = tuple(itertools.accumulate(map(Tensor.numel, parameters), initial=0))
        self._length = edges[-1]
        self._w = spare(self._length, parameters[0].device)
        low = LowPrecision(parameters, views_of(self._w, parameters))
        self._move_in(parameters)
        sparse = SparseParameters(module, parameters) if by_rows and not low else None
        super().__init__(parameters, edges, nn.Parameter(self._w), low, sparse)
        # The vector that the weights were loaded from or shown as last. It is a weak reference: memory that a server
        # lent must go back once it has been copied.
        self._loaded_from: weakref.ref[AnyFlat] | None = None
        self._tables: SparseFlat | None = None  # the same, kept: the next load copies the rows that differ from it
        self._loaded_version = -1
        self._awaited = LazyWeights(parameters, self._w) if fit(module) and not low else None

    def _move_in(self, parameters: list[nn.Parameter]) -> None:
        """Copies the parameters into the buffer and makes them views of it, except those that keep their own."""
        pieces = pieces_of(self._w, parameters)
        with torch.no_grad():
            for p, piece in zip(parameters, pieces, strict=True):
                piece.copy_(p)
                if not keeps_its_memory(p):
                    p.data = piece
        # Where parameters have to be; an empty one has no address.
        pairs = enumerate(zip(parameters, pieces, strict=True))
        self._pieces = {i: piece for i, (p, piece) in pairs if p.numel() and not keeps_its_memory(p)}
        self._inside = [parameters[i] for i in self._pieces]
        self._addresses = list(map(_address_of, self._inside))

    def __len__(self) -> int:
        return self._length

    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Returns name and shape of every trained parameter, in the order of the vector."""
        return [(name, tuple(p.shape)) for name, p in zip(self._names, self._parameters, strict=True)]

    @property
    def tensors(self) -> tuple[int, ...]:
        """Returns how many numbers each parameter has, in the order of the vector; those without any left out."""
        return tuple(p.numel() for p in self._parameters if p.numel())

    def fingerprint(self) -> str:
        """Returns a text that is the same in two processes exactly when their vectors mean the same parameters."""
        layout = [(compared(name), shape) for name, shape in self.layout()]
        return hashlib.sha256(repr(layout).encode()).hexdigest()[:16]

    def described(self) -> list[str]:
        """Returns a line for each trained parameter, and for each tensor of the rest, as models are compared."""
        trained = [f"{compared(name)} {list(shape)}" for name, shape in self.layout()]
        return trained + [f"{name} {list(shape)} {dtype}, untrained" for name, dtype, shape in self.rest.layout()]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Returns those that are trained, in the order of the vector."""
        return self._parameters

    # ---- weights -----------------------------------------------------------------------------------------
    def load(self, w: AnyFlat, *, late: bool = False) -> None:
        """Takes the weights `w`: one copy, or none when they are in place already. Raises ValueError on its length.

        late: parts of `w` that are still arriving may be copied later, each when somebody first looks at the parameter,
        who then waits for it (`paceline.engine.model.lazy_load`). Waiting raises PeerLost or TimedOut.
        """
        if self._awaited is not None:
            self._awaited.drop()
        loaded = self._loaded
        if loaded is not None and w.same_as(loaded):
            return
        if len(w) != self._length:
            raise ValueError(f"{len(w)} weights for a model of {self._length} parameters")
        self.bring_home()
        # torch counts every late copy as a write. The weights are those of `w` when these writes are made, so
        # `_remember` takes the present count and adds them; until then the weights count as changed.
        if late and self._awaited is not None and isinstance(w, ChunkedVector) and not w.there:
            arriving: weakref.ref[AnyFlat] = weakref.ref(w)
            before = self._version()
            self.touched()
            self._awaited.begin(w, lambda writes: self._remember(arriving, before + writes))
            return
        if isinstance(w, SparseFlat):
            w.copy_into(self._w, loaded)
        else:
            w.copy_into(self._w)
        self._low.show()
        self._remember(weakref.ref(w), self._version())
        self._tables = w if isinstance(w, SparseFlat) else None

    @property
    def settled(self) -> bool:
        """Returns True if all parameters have the weights that were loaded last."""
        return self._awaited is None or not self._awaited.absent

    def on_arrival(self, note: Callable[[int, int], None]) -> None:
        """Has `note(start, stop)` called for weights that arrive late, each part before anybody uses it."""
        if self._awaited is not None:
            self._awaited.arrived = note

    def settle(self) -> None:
        """Waits for the weights that are still arriving. Raises PeerLost or TimedOut when they do not come."""
        if self._awaited is not None:
            self._awaited.settle()

    def weights(self) -> AnyFlat:
        """Returns the weights as they are now: one copy, or none when they are what was loaded or asked for last."""
        self.settle()
        shown = self._loaded
        if shown is None:
            self.bring_home()
            self._low.bring()
            shown = Flat.copy_of(self._w)
            self._remember(weakref.ref(shown), self._version())
        return shown

    def touched(self) -> None:
        """Notes that the weights were changed behind torch's back (`p.data`, numpy); torch's own ways are noticed."""
        self._loaded_from = self._tables = None

    @contextlib.contextmanager
    def showing(self, w: AnyFlat) -> Iterator[nn.Module]:
        """Gives the module the weights `w` within the context, and its own again after it; those are not touched."""
        self.settle()
        shown = torch.empty_like(self._w)
        w.copy_into(shown)
        before = [p.data for p in self._parameters]  # those of 16 bits have memory of their own
        for p, piece in zip(self._parameters, pieces_of(shown, self._parameters), strict=True):
            p.data = torch.empty_like(p).copy_(piece) if keeps_its_memory(p) else piece
        try:
            yield self.module
        finally:
            for p, data in zip(self._parameters, before, strict=True):
                p.data = data

    @property
    def _loaded(self) -> AnyFlat | None:
        """Returns a vector with just the numbers that the parameters have now; None where there is none any more.

        torch counts the writes to each tensor (`_version`), so an unchanged sum of these counts means unchanged
        weights.
        """
        w = self._loaded_from() if self._loaded_from else None
        return w if w is not None and self._version() == self._loaded_version else None

    def _remember(self, w: weakref.ref[AnyFlat], version: int) -> None:
        """Notes from which weights the module was loaded: as long as nobody writes to it, they need no copy."""
        self._loaded_from, self._tables, self._loaded_version = w, None, version

    def _version(self) -> int:
        """Returns how many writes torch has counted on the parameters together."""
        return int(sum(map(_version_of, self._parameters), self.flat_parameter._version))

    def bring_home(self) -> None:
        """Moves parameters back into the buffer, with their numbers, whose `data` was assigned (`p.data = before`).

        Raises ConfigError where the module was moved or converted: then the gradients lie elsewhere, too.
        """
        if list(map(_address_of, self._inside)) == self._addresses:
            return
        for i, piece in self._pieces.items():
            p = self._parameters[i]
            if p.data_ptr() == piece.data_ptr():
                continue
            if (p.dtype, p.device, p.shape) != (piece.dtype, piece.device, piece.shape) or self._gradient_moved(i):
                raise ConfigError("the module was moved or converted after it was handed over: do that before")
            piece.copy_(p.detach())
            p.data = piece
        self.touched()

    def numbers(self) -> list[Tensor]:
        """Returns the memory that the parameters have, as vectors."""
        return [_numbers_of(p) for p in self._parameters] if self._low else [self._w]

    def release(self) -> None:
        """Leaves the module to its owner; parameters whose weights are still arriving keep the old ones."""
        if self._awaited is not None:
            self._awaited.drop()
        super().release()

    # ---- several processes -------------------------------------------------------------------------------
    def reset_others(self) -> None:
        """Tells the other processes that hold the model that their optimizers forget their state; there are none."""

    def optimizer_state(self) -> dict[str, Tensor | float]:
        """Returns what the optimizers of all processes that hold the model remember; {} where this is the only one."""
        return {}

    def load_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """Gives these optimizers what `optimizer_state` has returned."""
