"""`FlatGradients` makes the gradients of a module's parameters views of one buffer.

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

import functools
import weakref
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter, is_

import torch
from torch import Tensor, nn

from paceline.core.spans import Spans
from paceline.engine.model.low_precision import LowPrecision, keeps_its_memory
from paceline.engine.model.used_parameters import Used
from paceline.engine.sparse.embedding_gradients import SparseParameters
from paceline.engine.sparse.sparse_vector import AnyFlat
from paceline.engine.vectors.buffer_pool import BufferRef, spare
from paceline.engine.vectors.chunked import Chunks
from paceline.engine.vectors.flat import Flat

_grad_of = attrgetter("grad")
_IDLE_GRADIENTS_MAX = 2
SEPARATE_ON = frozenset({"cuda"})
"""Devices on which autograd makes the gradient of each parameter apart, and a few kernels join them."""


def views_of(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns consecutive pieces of `flat`, shaped like `tensors`."""
    pieces = torch.split(flat, [t.numel() for t in tensors])
    return [piece.view(t.shape) for piece, t in zip(pieces, tensors, strict=True)]


class GradientBuffer:
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


class FlatGradients:
    """Holds the gradients of `parameters` in flat form, in their order.

    edges: where each parameter begins in the vector of all, and its end. flat_parameter: all weights as one parameter,
    whose gradient is the buffer. low: the parameters of 16 bits. sparse: those whose gradients come in rows, if any.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        edges: tuple[int, ...],
        flat_parameter: nn.Parameter,
        low: LowPrecision,
        sparse: SparseParameters | None,
    ) -> None:
        self._parameters, self._edges, self.flat_parameter = parameters, edges, flat_parameter
        self._low, self._sparse = low, sparse
        self.device = parameters[0].device
        self._idle: list[GradientBuffer] = []
        # The parameters whose gradients lie in one buffer: all but those whose gradients come in rows.
        self._dense = sparse.others if sparse else parameters
        numbers = {id(p): i for i, p in enumerate(parameters)}
        self._numbers = [numbers[id(p)] for p in self._dense]
        self._used = Used(parameters, edges)
        self._gradient = GradientBuffer(self._dense, self.device)
        self._separate = True
        self._detach()
        self._may_separate = self.device.type in SEPARATE_ON and not sparse and not low
        if not self._may_separate:
            self.join_gradients()

    @property
    def by_rows(self) -> bool:
        """Returns True if gradients come as rows of tables."""
        return bool(self._sparse)

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
        if self._sparse:
            self._sparse.put_gradient(g, self._gradient.tensor)
        else:
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
        if self._attached() and not self._sparse:
            return self._used.any
        by_rows = set(range(len(self._parameters))).difference(self._numbers)
        if any(i in self._used and self._parameters[i].grad is not None for i in by_rows):
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
        nn.utils.clip_grad_norm_(self._parameters, norm)

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

    def _gradient_moved(self, i: int) -> bool:
        """Returns True if the gradient of parameter `i` is still the view of the buffer, and lies elsewhere."""
        if self._separate or i not in self._numbers:
            return False
        at, buffer = self._numbers.index(i), self._gradient.tensor
        grad, start = self._dense[at].grad, sum(p.numel() for p in self._dense[:at])
        return grad is not None and grad is self._expected[at] and grad.data_ptr() != buffer[start:].data_ptr()

    def _attached(self) -> bool:
        """Returns True if every parameter's gradient is still the view that `_bind` put there."""
        return all(map(is_, map(_grad_of, self._dense), self._expected))

    def _bind(self, gradient: GradientBuffer) -> None:
        """Makes the views of `gradient` the parameters' gradients; `_expected` remembers them, to
        notice a replacement.
        """
        self._expected: list[Tensor | None] = []
        for p, view in zip(self._dense, gradient.views, strict=True):
            p.grad = view if p.requires_grad and not keeps_its_memory(p) else None
            self._expected.append(p.grad)
        if not self._sparse:
            self.flat_parameter.grad = gradient.tensor

    def _detach(self) -> None:
        """Leaves the parameters without gradients, which autograd makes anew; a buffer is made when it is needed."""
        self._gradient = GradientBuffer(self._dense, self.device)
        self._expected = [None] * len(self._dense)
        self.flat_parameter.grad = None
        for p in self._dense:
            p.grad = None

    def _switch(self) -> None:
        """Goes on with a gradient buffer that nobody refers to, an idle one or a new one."""
        self._idle.append(self._gradient)
        free = next((g for g in self._idle if not g.lent), None)
        if free is None:
            free = GradientBuffer(self._dense, self.device)
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
