"""Measures the norm of what a server is sent, without a pass of its own.

The gradient check asks for it before anything is done with a contribution v. What is done first is nearly always the
same: a sum of v and something that is there already, in the same proportions as last time (w - lr g; sum + g; g + mu
v). Vectors are values, so that sum may be made before it is asked for: one pass reads v, writes the sum and adds up the
squares. If the check rejects v, nobody asks for the sum, and nothing has changed; if something else is asked for, it is
computed as usual.

    v: just judged; other: what it is added to, `onto` or the last sum of this kind (momentum)
    guess = which of the two, on which side, in what ratio; used where the last two sums were alike

It holds weak references alone. A rule that makes no such sum (Adam) releases v and w when it has read them, and a
server must not hold two more models until the next push.

It needs numba, whose import takes a good part of a second: for short vectors it is not worth that.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch import Tensor

from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

LENGTH_MIN = 1 << 16
"""Elements of a slice from which on the fused pass is worth importing numba."""


class Probe:
    """Serves one slice: called with a vector, it returns its Euclidean length. Use it on one thread at a time."""

    def __init__(self, length: int) -> None:
        """`length` is the number of elements of the slice."""
        self._loop: Any = None
        if length >= LENGTH_MIN:
            from paceline.engine.vectors.fused_passes import add_measured

            self._loop = add_measured
        self._v: weakref.ref[Tensor] | None = None  # judged, and not added to anything yet
        self._onto: weakref.ref[Tensor] | None = None
        self._last: weakref.ref[Tensor] | None = None  # the sum that the one before went into
        self._guess: tuple[bool, bool, float] | None = None  # is v the first term, is `onto` the other, ratio
        self._sure = False
        # The x and y of x + ratio y, the ratio, and the sum; kept only as long as v is alive.
        self._made: tuple[weakref.ref[Tensor], weakref.ref[Tensor], float, Tensor] | None = None

    def __call__(self, v: Any, onto: Any = None) -> float:
        """Returns the length of `v`, which is not finite if a number of `v` is not.

        onto: the vector that `v` is about to be added to, as far as that is known.
        """
        self._v = self._onto = self._made = None
        if self._loop is None or torch.get_num_threads() > 1 or not _go_together(v, onto):
            return float(v.norm())
        v.probe, self._v, self._onto = self, weakref.ref(v.tensor, self._dropped), weakref.ref(onto.tensor)
        other = self._other()
        return float(v.norm()) if other is None else self._ahead(v, other)

    def _other(self) -> Tensor | None:
        """Returns what `v` will probably be added to; None while the last two sums were unlike."""
        if not self._sure or self._guess is None:
            return None
        return _there(self._onto if self._guess[1] else self._last)

    def _ahead(self, v: Flat, other: Tensor) -> float:
        """Returns the length of `v`, and makes the sum that will probably be asked for in the same pass."""
        assert self._guess is not None
        first, _, ratio = self._guess
        x, y = (v.tensor, other) if first else (other, v.tensor)
        out = spare(len(v))
        squares = self._loop(x.numpy(), y.numpy(), ratio, v.tensor.numpy(), out.numpy())
        if math.isfinite(squares):  # nobody will ask for a sum with anything else
            self._made = (weakref.ref(x), weakref.ref(y), ratio, out)
        return abs(v.scale) * math.sqrt(squares)

    def _dropped(self, _v: object) -> None:
        """Drops the sum: `v` is gone, so nobody will ask for it."""
        self._made = None

    def sum(self, x: Tensor, y: Tensor, ratio: float) -> Tensor:
        """Returns x + ratio y, whether or not it has been made already."""
        v, onto, made = _there(self._v), _there(self._onto), self._made
        self._v = self._onto = self._made = None
        if made is not None and made[0]() is x and made[1]() is y and made[2] == ratio:
            out = made[3]
        else:
            out = torch.add(x, y, alpha=ratio, out=spare(x.numel(), x.device))
        if v is not None and (x is v or y is v):
            self._learn(v, onto, x, y, ratio)
            self._last = weakref.ref(out)
        return out

    def _learn(self, v: Tensor, onto: Tensor | None, x: Tensor, y: Tensor, ratio: float) -> None:
        """Remembers of what kind this sum was; the next guess is sure if the last one was of the same kind."""
        other = y if x is v else x
        guess = (x is v, other is onto, ratio)
        last = _there(self._last)
        self._sure = guess == self._guess and (other is onto or other is last)
        self._guess = guess


def _there(what: weakref.ref[Tensor] | None) -> Tensor | None:
    """Returns the tensor if it is still alive."""
    return what() if what else None


def _go_together(v: Any, onto: Any) -> bool:
    """Returns True if a sum of both can be made ahead: dense vectors of one length, on the CPU, and v not zero."""
    if type(v) is not Flat or type(onto) is not Flat or len(v) != len(onto):
        return False
    return v.scale != 0.0 and v.device.type == onto.device.type == "cpu"
