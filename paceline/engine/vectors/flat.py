"""`Flat` is a vector that is a value, over a torch tensor; `FlatMemory` is where such vectors get their memory.

A Flat is a tensor times a number. The number is what makes value semantics cheap: `v * s` touches no memory, and `a +
b` and `a - b` are one pass, `torch.add(a.tensor, b.tensor, alpha=b.scale / a.scale, out=spare)`. Results are written
into recycled buffers (`paceline.engine.vectors.buffer_pool`), so a chain of updates allocates nothing once it is warm.

Nobody may change a tensor that a Flat was made of. Whatever refers to the memory keeps it: a slice, a tensor got from
`value()` and a memoryview from `bytes_of` stay valid after the Flat itself is gone.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from paceline.engine.vectors.buffer_pool import Pool, lent, passed_bytes, spare
from paceline.engine.vectors.page_lock import page_lock
from paceline.engine.vectors.pinned_copy import to_gpu, to_host

__all__ = ["Flat", "FlatMemory", "Pool", "spare"]

_SAME_AS_ONE = 2.0**-40  # far below the precision of float32; so (g * n) * (1 / n) costs no pass
_RATIO_MAX = 2.0**40  # beyond it, the sum is written on the scale of the other term, as it could overflow


class Adder(Protocol):
    """Makes sums for a Flat, such as one that measures a norm in the same pass (`norm_probe.py`)."""

    def sum(self, x: Tensor, y: Tensor, ratio: float) -> Tensor:
        """Returns x + ratio y."""


class Flat:
    """An immutable run of float32 numbers is `scale` times `tensor`, which is 1-D and contiguous.

    A scale of 0 means zeros, whatever the tensor holds, infinities included (the convention of BLAS). Vectors on
    different devices may be mixed; the work is done on the accelerator. Arithmetic raises ValueError when lengths
    differ. There is no autograd here.
    """

    __slots__ = ("__weakref__", "_fresh", "_value", "probe", "scale", "tensor")
    counter = staticmethod(passed_bytes)
    """Returns the bytes that arithmetic with such vectors has written so far, in this process."""
    __array_ufunc__ = None  # numpy's numbers leave `number * flat` to us

    def __init__(self, tensor: Tensor, scale: float = 1.0) -> None:
        """Is for callers who know that `tensor` is what the class asks for; all others use `wrap` or `copy_of`."""
        self.tensor = tensor
        self.scale = scale
        self._value: Tensor | None = None
        self._fresh = False
        self.probe: Adder | None = None  # makes the sums that this is a term of

    @classmethod
    def wrap(cls, tensor: Tensor) -> Flat:
        """Returns the numbers of `tensor` without a copy; nobody may change them from now on.

        Raises ValueError unless it is a contiguous, 1-D tensor of float32.
        """
        if tensor.dim() != 1 or tensor.dtype != torch.float32 or not tensor.is_contiguous():
            raise ValueError(f"not a contiguous 1-D float32 tensor: {tensor.dtype} of shape {tuple(tensor.shape)}")
        return cls(tensor.detach())

    @classmethod
    def copy_of(cls, tensor: Tensor) -> Flat:
        """Returns a copy of the numbers that `tensor`, of any shape, has now."""
        source = tensor.detach()
        out = spare(source.numel(), source.device)
        out.view(source.shape).copy_(source)
        return cls(out)

    @property
    def nbytes(self) -> int:
        return 4 * self.tensor.numel()

    @property
    def device(self) -> torch.device:
        return self.tensor.device

    @property
    def on_gpu(self) -> Tensor | None:
        """Returns the numbers where they lie, if that is a GPU; None elsewhere."""
        return self.value() if self.device.type == "cuda" else None

    @property
    def memory(self) -> FlatMemory:
        """Returns where a driver gets room for vectors like this one."""
        return FlatMemory(self.device)

    def __len__(self) -> int:
        return self.tensor.numel()

    def __getitem__(self, part: slice) -> Flat:
        """Returns the same memory. Raises ValueError for a step other than 1."""
        if not isinstance(part, slice):
            raise TypeError("a Flat is taken apart by slices only")
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ValueError("a slice of a Flat cannot skip elements")
        return self._cut(start, max(start, stop))

    def _cut(self, start: int, stop: int) -> Flat:
        """Returns a view of some elements, at the same scale."""
        cut = Flat(self.tensor[start:stop], self.scale)
        cut._fresh = self._fresh
        return cut

    def _scaled(self, scale: float) -> Flat:
        """Returns the same tensor at another scale; no memory is touched."""
        scaled = Flat(self.tensor, scale)
        scaled.probe = self.probe
        return scaled

    def __mul__(self, factor: float | Flat) -> Flat:
        """Returns the product with a number (no pass) or with another Flat, element by element (one pass)."""
        if isinstance(factor, Flat):
            _same_length(self, factor)
            x, y = _side_by_side(self.tensor, factor.tensor)
            out = torch.mul(x, y, out=spare(len(self), x.device))
            return Flat(out, _tidy(self.scale * factor.scale))
        try:
            return self._scaled(_tidy(self.scale * float(factor)))
        except TypeError:  # a vector of another kind knows what to do
            return NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | Flat) -> Flat:
        """Returns the quotient by a number (no pass) or by another Flat, element by element (one pass)."""
        if isinstance(divisor, Flat):
            _same_length(self, divisor)
            x, y = _side_by_side(self.tensor, divisor.value())
            return Flat(torch.div(x, y, out=spare(len(self), x.device)), self.scale)
        try:
            return self * (1.0 / divisor)
        except TypeError:
            return NotImplemented

    def __pow__(self, exponent: float) -> Flat:
        """Raises each element to `exponent`: one pass."""
        return Flat(torch.pow(self.value(), exponent, out=spare(len(self), self.device)))

    def spliced(self, part: slice, v: Flat) -> Flat:
        """Returns these numbers with those of `part` replaced by `v`: one copy."""
        out = spare(len(self), self.device)
        self.copy_into(out)
        v.copy_into(out[part])
        return Flat(out)

    def __neg__(self) -> Flat:
        return self._scaled(-self.scale)

    def __add__(self, other: Flat) -> Flat:
        return _sum(self, other, 1.0) if isinstance(other, Flat) else NotImplemented

    def __sub__(self, other: Flat) -> Flat:
        return _sum(self, other, -1.0) if isinstance(other, Flat) else NotImplemented

    def value(self) -> Tensor:
        """Returns the numbers, scale applied, to be read only: the tensor itself, or one pass the first time."""
        if self.scale == 1.0:
            return self.tensor
        if self._value is None:
            out = spare(len(self), self.device)
            self.copy_into(out)
            self._value = out
        return self._value

    def copy_into(self, out: Tensor) -> None:
        """Writes the numbers, scale applied, over `out`, on any device, in one pass."""
        if self.scale == 0.0:
            out.zero_()
        elif out.is_cuda and self.tensor.is_cpu:
            to_gpu(self.tensor, out)
            if self.scale != 1.0:
                out.mul_(self.scale)
        elif self.scale == 1.0:
            out.copy_(self.tensor)
        elif out.device == self.device:
            torch.mul(self.tensor, self.scale, out=out)
        else:
            out.copy_(self.value())

    def same_as(self, other: object) -> bool:
        """Returns True if both are the same memory and scale, hence equal; False says nothing. It reads no numbers."""
        if type(other) is not type(self) or not isinstance(other, Flat):
            return False
        same_place = self.tensor.data_ptr() == other.tensor.data_ptr() and self.device == other.device
        return same_place and len(self) == len(other) and self.scale == other.scale

    def norm(self) -> float:
        """Returns the Euclidean length."""
        return abs(self.scale) * float(torch.linalg.vector_norm(self.tensor)) if self.scale else 0.0

    def __repr__(self) -> str:
        return f"Flat({len(self)} on {self.device}, scale {self.scale:g})"


def norm(v: Any, onto: Any = None) -> float:
    """Returns the Euclidean length of any vector of the engine, wherever it lies; not finite if one of its numbers is
    not.

    onto: the vector it is about to be added to; `paceline.engine.vectors.norm_probe` makes use of that.
    """
    return float(v.norm())


def finite(v: Any) -> bool:
    """Returns True if every number of `v` is finite."""
    return math.isfinite(v.norm()) or bool(torch.isfinite(v.value()).all())  # squares of finite numbers may overflow


def _tidy(scale: float) -> float:
    """Returns the scale, or exactly 1 where it differs by rounding only."""
    return 1.0 if abs(scale - 1.0) < _SAME_AS_ONE else scale


def _same_length(a: Flat, b: Flat) -> None:
    """Raises ValueError for vectors of different lengths."""
    if len(a) != len(b):
        raise ValueError(f"vectors of {len(a)} and {len(b)} elements do not go together")


def _side_by_side(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both tensors on one device, the accelerator if one of them is there."""
    if (x.is_cpu and y.is_cpu) or x.device == y.device:
        return x, y
    return (x, y.to(x.device)) if x.device.type != "cpu" else (x.to(y.device), y)


def _sum(a: Flat, b: Flat, sign: float) -> Flat:
    """Returns a + sign b, on the scale of `a`, unless that of `b` is 1 (which saves a later pass) or far larger."""
    _same_length(a, b)
    x, x_scale, y, y_scale = a.tensor, a.scale, b.tensor, sign * b.scale
    if x_scale == 0.0:
        return Flat(y, y_scale)
    if y_scale == 0.0:
        return a
    # The result has the scale of x. With scale 1 its numbers can be read without another pass.
    if (y_scale == 1.0 and x_scale != 1.0) or abs(y_scale) > _RATIO_MAX * abs(x_scale):
        x, x_scale, y, y_scale = y, y_scale, x, x_scale
    x, y = _side_by_side(x, y)
    probe = a.probe or b.probe
    if probe is not None:
        return Flat(probe.sum(x, y, y_scale / x_scale), x_scale)
    return Flat(torch.add(x, y, alpha=y_scale / x_scale, out=spare(x.numel(), x.device)), x_scale)


def on_host(v: Flat) -> Tensor:
    """Returns the numbers in host memory: a page-locked copy of what is on a GPU."""
    if v.tensor.is_cpu:
        return v.value()
    return to_host(v.tensor, v.scale) if v.scale else spare(len(v), pinned=True).zero_()


class FlatMemory:
    """Gives a driver room for Flats that arrive, and the bytes of those that leave.

    device: where the vectors of this party live. Bytes arrive in host memory in any case, page-locked when `device` is
    a GPU; arithmetic and `FlatModel.load` bring them over.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._pinned = torch.device(device).type == "cuda"

    def mapped(self, memory: ctypes.Array[ctypes.c_char], *, writable: bool) -> None:
        """Prepares a mapping that processes of this host share: where vectors live on a GPU, it is page-locked."""
        if self._pinned:
            page_lock(memory, writable=writable)

    def shareable(self, v: Flat) -> Flat:
        """Returns `v`, or a copy of it where others of this host can read it, if it is on a GPU."""
        return v if v.tensor.is_cpu else Flat(on_host(v))

    def empty(self, length: int) -> Flat:
        """Returns a vector of new or recycled memory, which may be written to once."""
        v = Flat(spare(length, pinned=self._pinned))
        v._fresh = True
        return v

    def bytes_of(self, v: Flat) -> memoryview:
        """Returns the numbers as bytes; the view keeps the memory it shows.

        It is writable the first time it is asked of a vector from `empty`, or of a slice of one; read-only otherwise,
        because nothing that was handed out is ever changed. A scaled vector costs a pass, one on a GPU a copy.
        """
        numbers = on_host(v)
        view = numbers.numpy().view(np.uint8).data
        writable, v._fresh = v._fresh, False
        return view if writable else view.toreadonly()

    def address_of(self, v: Flat) -> int:
        """Returns the address of the numbers, scale applied; 0 when they are on a GPU."""
        return v.value().data_ptr() if v.tensor.is_cpu else 0

    def view(self, room: memoryview, begin: int, length: int, over: Callable[[int], object], loan: int) -> Flat:
        """Returns the `length` numbers that lie `begin` bytes into `room`, which nobody may write.

        `over(loan)` is called when the last tensor of them is gone.
        """
        return Flat(lent(room.obj, begin, length, over, loan))

    def join(self, parts: Sequence[Flat]) -> Flat:
        """Returns one vector; no copy when `parts` lie side by side in one buffer, else one copy a part."""
        if len(parts) == 1:
            return parts[0]
        others: list[Any] = [part for part in parts if not isinstance(part, Flat)]
        if others:  # a vector of another kind knows how
            return cast(Flat, others[0].joined(parts, self))
        return rejoined(parts) or self.strung(parts)

    def strung(self, parts: Sequence[Flat]) -> Flat:
        """Returns one vector from parts that lie anywhere."""
        return _concatenate(parts)


def rejoined(parts: Sequence[Flat]) -> Flat | None:
    """Returns the vector that `parts` make together where they lie side by side in one buffer; None elsewhere."""
    first = parts[0].tensor
    home, start = first.untyped_storage(), first.storage_offset()
    place, end = (home.data_ptr(), home.nbytes()), start
    for part in parts:
        storage = part.tensor.untyped_storage()
        if (storage.data_ptr(), storage.nbytes()) != place or part.tensor.storage_offset() != end:
            return None
        if part.scale != parts[0].scale or part.device != parts[0].device:
            return None
        end += len(part)
    return Flat(first.as_strided((end - start,), (1,)), parts[0].scale)


def _concatenate(parts: Sequence[Flat]) -> Flat:
    """Returns one vector with the numbers of all parts.

    Where all parts have one scale it stays a factor; otherwise each is multiplied while it is copied.
    """
    away = [part.device for part in parts if part.device.type != "cpu"]
    out = spare(sum(map(len, parts)), away[0] if away else None)
    one_scale = all(part.scale == parts[0].scale for part in parts) and math.isfinite(parts[0].scale)
    at = 0
    for part in parts:
        room = out[at : at + len(part)]
        (Flat(part.tensor) if one_scale else part).copy_into(room)
        at += len(part)
    return Flat(out, parts[0].scale if one_scale else 1.0)
