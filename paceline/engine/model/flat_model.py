"""`FlatModel` puts a module's trained parameters into one buffer and makes their gradients views of another.

What a scheme exchanges is then one tensor, and nothing on the hot path loops over parameters but a check that the views
are still in place (tens of nanoseconds each). The module stays the user's: forward, backward, `parameters()` and
`state_dict()` work as before.

The gradient is handed out without a copy. As nothing that was handed out may change, the buffer is used again only when
nobody refers to it any more; until then the next gradient is written into another one:

    zero_grad()    the buffer is free        it is zeroed and used again
                   somebody still has it     an idle buffer takes its place, or a new one
    backward       autograd adds into the views
    gradient()     the buffer is lent, as a Flat, until the last reference to it is gone

On a GPU it is otherwise, as a kernel for each parameter costs more there than the memory does:

    zero_grad()    parameters have no gradient (None), as after torch's own `zero_grad`
    backward       autograd makes gradients, without adding
    gradient()     a new buffer gets them, by a few kernels in all, and is lent
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from paceline.core.errors import ConfigError
from paceline.core.spans import Spans
from paceline.engine.model.lazy_load import LazyWeights, fit
from paceline.engine.model.low_precision import LOW, LowPrecision
from paceline.engine.model.trainable import Rest, trained_of
from paceline.engine.model.used_parameters import Used
from paceline.engine.sparse.embedding_gradients import SparseParameters
from paceline.engine.sparse.sparse_vector import AnyFlat, SparseFlat
from paceline.engine.vectors.buffer_pool import BufferRef, spare
from paceline.engine.vectors.chunked import ChunkedVector, Chunks
from paceline.engine.vectors.flat import Flat

_grad_of = attrgetter("grad")
_version_of = attrgetter("_version")
_IDLE_GRADIENTS_MAX = 2
SEPARATE_ON = frozenset({"cuda"})
"""Devices on which autograd makes the gradient of each parameter apart, and a few kernels join them."""


def views_of(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns consecutive pieces of `flat`, shaped like `tensors`."""
    pieces = torch.split(flat, [t.numel() for t in tensors])
    return [piece.view(t.shape) for piece, t in zip(pieces, tensors, strict=True)]


def pieces_of(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns the same memory as `views_of`, but for torch each piece is a storage of its own, as long as itself.

    What is saved or copied of a module is then what a plain one has: a view would take the whole buffer along, and
    safetensors refuses such.
    """
    return [from_dlpack(view) if view.numel() else view for view in views_of(flat, tensors)]


class _Gradient:
    """Holds one gradient buffer and its views, one for each parameter; both are made when they are first needed.

    lent: somebody still refers to it.
    """

    def __init__(self, parameters: Sequence[Tensor], device: torch.device) -> None:
        self._parameters, self._device = parameters, device
        self._loan: weakref.ref[BufferRef] | None = None

    @functools.cached_property
    def tensor(self) -> Tensor:
        """Returns the buffer; zeros at first."""
        return spare(sum(p.numel() for p in self._parameters), self._device).zero_()

    @functools.cached_property
    def views(self) -> list[Tensor]:
        """Returns the buffer in pieces, each shaped like its parameter."""
        return views_of(self.tensor, self._parameters)

    @property
    def lent(self) -> bool:
        """Returns True while somebody still holds the gradient that was lent."""
        return self._loan is not None and self._loan() is not None

    def lend(self) -> Flat:
        """Returns the gradient as a value. Its buffer is not written to while anybody holds that."""
        loan = self._loan() if self._loan is not None else None
        if loan is None:
            loan = BufferRef(self.tensor)
            self._loan = weakref.ref(loan)
        return Flat(loan.tensor())


class FlatModel:
    """Holds the trained part of `module` on `device` in flat form, in the order of `trained_of`, tied parameters once.

    optimizer: trained is what it holds and what requires a gradient (`paceline.engine.model.trainable`); None: all that
    requires one. The rest of the module stays as it is. Do not move or convert the module afterwards.

    Parameters of 16 bits keep their own memory; the buffer has their float32 masters
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
        self._parameters = list(named.values())
        self.device = self._parameters[0].device
        self._edges = tuple(itertools.accumulate(map(Tensor.numel, self._parameters), initial=0))
        self._length = self._edges[-1]
        self._w = spare(self._length, self.device)
        self._low = LowPrecision(self._parameters, views_of(self._w, self._parameters))
        self._move_in()
        self.flat_parameter = nn.Parameter(self._w)
        # The vector that the weights were loaded from or shown as last. It is a weak reference: memory that a server
        # lent must go back once it has been copied.
        self._loaded_from: weakref.ref[AnyFlat] | None = None
        self._tables: SparseFlat | None = None  # the same, kept: the next load copies the rows that differ from it
        self._loaded_version = -1
        self._awaited = LazyWeights(self._parameters, self._w) if fit(module) and not self._low else None
        self._idle: list[_Gradient] = []
        self._sparse = SparseParameters(module, self._parameters) if by_rows and not self._low else None
        # The parameters whose gradients lie in one buffer: all but those whose gradients come in rows.
        self._dense = self._sparse.others if self._sparse else self._parameters
        numbers = {id(p): i for i, p in enumerate(self._parameters)}
        self._numbers = [numbers[id(p)] for p in self._dense]
        self._used = Used(self._parameters, self._edges)
        self._gradient = _Gradient(self._dense, self.device)
        self._separate = True
        self._detach()
        self._may_separate = self.device.type in SEPARATE_ON and not self._sparse and not self._low
        if not self._may_separate:
            self.join_gradients()

    def _move_in(self) -> None:
        """Copies the parameters into the buffer and makes them views of it, except those of 16 bits."""
        with torch.no_grad():
            for p, piece in zip(self._parameters, pieces_of(self._w, self._parameters), strict=True):
                piece.copy_(p)
                if p.dtype not in LOW:
                    p.data = piece
        # The first and the last parameter in the buffer, by which `_check_place` finds that the module was moved. An
        # empty parameter has no address.
        inside = [
            (p, at) for p, at in zip(self._parameters, self._edges, strict=False) if p.numel() and p.dtype not in LOW
        ]
        self._ends = inside[:1] + inside[-1:]

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
        return hashlib.sha256(repr(self.layout()).encode()).hexdigest()[:16]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Returns those that are trained, in the order of the vector."""
        return self._parameters

    @property
    def by_rows(self) -> bool:
        """Returns True if gradients come as rows of tables."""
        return bool(self._sparse)

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
        self._check_place()
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

    def settle(self) -> None:
        """Waits for the weights that are still arriving. Raises PeerLost or TimedOut when they do not come."""
        if self._awaited is not None:
            self._awaited.settle()

    def weights(self) -> AnyFlat:
        """Returns the weights as they are now: one copy, or none when they are what was loaded or asked for last."""
        self.settle()
        shown = self._loaded
        if shown is None:
            self._check_place()
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
            p.data = piece.to(p.dtype)
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

    def _check_place(self) -> None:
        """Raises ConfigError if the parameters do not lie in the buffer any more."""
        start = self._w.data_ptr()
        if any(p.data_ptr() != start + at * self._w.element_size() for p, at in self._ends):
            raise ConfigError("the module was moved or converted after it was handed over: do that before")

    # ---- gradient ----------------------------------------------------------------------------------------
    def join_gradients(self) -> None:
        """Lets backward write into one buffer from now on, also on a GPU, and autograd tell what it has reached."""
        if not self._separate:
            return
        self._separate = False
        self._used.watch()
        self._bind(self._gradient)

    def separate_gradients(self) -> None:
        """Undoes `join_gradients` where gradients were apart before, from the next `zero_grad` on."""
        if self._may_separate and not self._separate:
            self._separate = True
            self._used.end()

    def zero_grad(self) -> None:
        """Prepares a backward pass: one pass over the buffer, or over another one when somebody
        still holds this one.
        """
        if self._separate:
            self._detach()
            self._used.clear()
            return
        if self._gradient.lent:
            self._switch()
        elif not self._attached():
            self._bind(self._gradient)
        self._gradient.tensor.zero_()
        self._used.clear()
        if self._sparse:
            self._sparse.zero_grad()

    def gradient(self) -> AnyFlat:
        """Returns the gradient that the last backward passes left, without a copy.

        Call `zero_grad` before the next one.
        """
        self.collect()
        dense = self._gradient.lend()
        return self._sparse.gradient(dense) if self._sparse else dense

    def keep_gradients_of(self, numbers: Collection[int]) -> None:
        """Parameters of other numbers have no gradient, as if no pass had used them."""
        for i, p, view in zip(self._numbers, self._dense, self._expected, strict=True):
            if i in numbers:
                continue
            if p.grad is not view:
                p.grad = None
            elif view is not None and i in self._used:
                view.zero_()
            self._used.set(i, False)

    def put_gradient(self, g: AnyFlat, unused: Spans) -> None:
        """Gives the parameters a copy of `g` as their gradient, and none (None) to those that are `unused`."""
        self.zero_grad()
        if self._separate:
            self._bind(self._gradient)
        g.copy_into(self._gradient.tensor)
        self._used.all_but(unused)
        self.show_unused()
        self._low.put_gradients(self._gradient.views, self._used)

    def collect(self) -> None:
        """Copies into the buffer the gradients that the user's code replaced
        (`optimizer.zero_grad()` drops them, say).
        """
        if self._attached():
            return
        found, was = list(map(_grad_of, self._dense)), self._expected
        if self._gradient.lent:
            self._switch()
        for i, grad, old in zip(self._numbers, found, was, strict=True):
            if grad is not old:
                self._used.set(i, grad is not None)
        _take_over(self._dense, found, self._gradient.views)
        self._bind(self._gradient)

    # ---- what was used -----------------------------------------------------------------------------------
    def unused(self) -> Spans:
        """Returns where no backward pass since `zero_grad` has left a gradient; after `gradient`."""
        return self._used.unused()

    def unused_among(self, parameters: Iterable[int]) -> Spans:
        """Returns where those of these parameters lie that have no gradient."""
        return self._used.spans(i for i in parameters if i not in self._used)

    @property
    def has_gradient(self) -> bool:
        """Returns True if any parameter has a gradient since `zero_grad`, from backward or from the user's code."""
        if self._separate:
            return any(grad is not None for grad in map(_grad_of, self._dense))
        if self._attached():
            return self._used.any
        if self._sparse and any(i in self._used for i in set(range(len(self._parameters))).difference(self._numbers)):
            return True
        # What backward left may have been cleared since: `optimizer.zero_grad()` makes it None.
        dense = zip(self._numbers, map(_grad_of, self._dense), self._expected, strict=True)
        return any(grad is not None and (grad is not view or i in self._used) for i, grad, view in dense)

    @property
    def gradient_is_zero(self) -> bool:
        """Returns True if every number of the gradients is exactly zero; one pass over them."""
        found = [p.grad for p in self._parameters if p.grad is not None]
        return bool(found) and not any(bool(_numbers_of(grad).any()) for grad in found)

    def show_unused(self) -> None:
        """Sets the gradient of parameters without one to None, as torch's optimizers expect."""
        if self._used.all:
            return
        for i, p, view in zip(self._numbers, self._dense, self._expected, strict=True):
            if i not in self._used and p.grad is view:
                p.grad = None

    def clip_gradients(self, norm: float) -> None:
        """Shortens the gradient to `norm` where it is longer."""
        nn.utils.clip_grad_norm_(self.parameters, norm)

    def reset_others(self) -> None:
        """Tells the other processes that hold the model that their optimizers forget their state; there are none."""

    def optimizer_state(self) -> dict[str, Tensor | float]:
        """Returns what the optimizers of all processes that hold the model remember; {} where this is the only one."""
        return {}

    def load_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """Gives these optimizers what `optimizer_state` has returned."""

    def lend_arriving(self, what: str) -> tuple[Chunks, Tensor]:
        """Returns the gradient that backward is about to make, parameter by parameter, and the buffer that it is
        written into.

        Call `zero_grad` before. The caller learns when the gradient of parameter i is complete; it then calls
        `collect_one(i)` and `put(i)`. `what` is named in the error when a wait is in vain. It does not work by rows.
        """
        return Chunks(self._edges, what=what, home=self._gradient.lend()), self._gradient.tensor

    def collect_one(self, i: int) -> None:
        """Copies the gradient of parameter `i` into the buffer if it lies elsewhere."""
        p = self._parameters[i]
        if p.grad is not self._expected[i]:
            self._used.set(i, p.grad is not None)
            _take_over([p], [p.grad], [self._gradient.views[i]])
            p.grad = self._expected[i]

    def release(self) -> None:
        """Leaves the module to its owner: no hooks, and no gradient, as after torch's `zero_grad`."""
        self._used.end()
        for p in self._parameters:
            p.grad = None

    def _attached(self) -> bool:
        """Returns True if every parameter's gradient is still the view that `_bind` put there."""
        return all(map(is_, map(_grad_of, self._dense), self._expected))

    def _bind(self, gradient: _Gradient) -> None:
        """Makes the views of `gradient` the parameters' gradients; `_expected` remembers them, to
        notice a replacement.
        """
        self._expected: list[Tensor | None] = []
        for p, view in zip(self._dense, gradient.views, strict=True):
            p.grad = view if p.requires_grad and p.dtype not in LOW else None
            self._expected.append(p.grad)
        if not self._sparse:
            self.flat_parameter.grad = gradient.tensor

    def _detach(self) -> None:
        """Leaves the parameters without gradients, which autograd makes anew; a buffer is made when it is needed."""
        self._gradient = _Gradient(self._dense, self.device)
        self._expected = [None] * len(self._dense)
        self.flat_parameter.grad = None
        for p in self._dense:
            p.grad = None

    def _switch(self) -> None:
        """Goes on with a gradient buffer that nobody refers to, an idle one or a new one."""
        self._idle.append(self._gradient)
        free = next((g for g in self._idle if not g.lent), None)
        if free is None:
            free = _Gradient(self._dense, self.device)
        self._idle = [g for g in self._idle if g is not free][-_IDLE_GRADIENTS_MAX:]
        self._gradient = free
        self._bind(free)


def _numbers_of(grad: Tensor) -> Tensor:
    """Returns the numbers that a gradient holds: those of its rows where it is sparse."""
    return grad._values() if grad.is_sparse else grad


def _take_over(parameters: Sequence[nn.Parameter], grads: Sequence[Tensor | None], views: Sequence[Tensor]) -> None:
    """Copies gradients into their views, which become zeros where there is none."""
    rooms, found = list[Tensor](), list[Tensor]()
    for p, grad, view in zip(parameters, grads, views, strict=True):
        if grad is None or not p.requires_grad:
            view.zero_()
        elif grad is not view:
            rooms.append(view)
            found.append((grad.to_dense() if grad.is_sparse else grad).detach())
    if found:
        torch._foreach_copy_(rooms, found)
