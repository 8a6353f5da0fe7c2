"""Compiles loops that do two things in one pass over memory, by numba.

Import it where it is about to be used, never before: numba takes a good part of a second. Machine code is kept on disk
(`cache=True`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

BLOCK = 4096


def compiled(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a loop at once, or loads its machine code; anew in every process where no folder may be written.

    The order of a sum is the compiler's, so that it becomes vector instructions. Nothing is assumed to be finite.
    """
    fast = {"reassoc", "contract", "nsz"}

    def made(loop: Callable[..., Any]) -> Any:
        """Compiles a loop; where no folder takes the machine code it is compiled anew in each process."""
        try:
            return numba.njit(signature, nogil=True, cache=True, error_model="numpy", fastmath=fast)(loop)
        except RuntimeError:  # there is nowhere to keep machine code, neither beside the source nor in the user's cache
            return numba.njit(signature, nogil=True, error_model="numpy", fastmath=fast)(loop)

    return made


@compiled("float64(float32[::1], float32[::1], float32, float32[::1], float32[::1])")
def add_measured(x, y, ratio, v, out):  # type: ignore[no-untyped-def]
    """Writes out <- x + ratio y, and returns the sum of squares of v, which is x or y.

    Squares are added in float32 within a block of numbers, and blocks in float64.
    """
    total = 0.0
    for begin in range(0, len(x), BLOCK):
        end = min(begin + BLOCK, len(x))
        xs, ys, vs, outs = x[begin:end], y[begin:end], v[begin:end], out[begin:end]
        squares = np.float32(0)
        for i in range(end - begin):
            squares += vs[i] * vs[i]
            outs[i] = xs[i] + ratio * ys[i]
        total += float(squares)
    return total


_W = "float32[::1]"


@compiled(f"void({_W}, {_W}, float32, int64[:,::1], float32[:,::1], float32, {_W}, {_W})")
def sgd_step(w, g, scale, runs, numbers, factor, v, out):  # type: ignore[no-untyped-def]
    """Makes an SGD step on runs of numbers, each by the numbers of its group: lr, decay, mu, and the shares of d and v.

    d = scale g + decay w;  v <- mu v + d;  out <- w - factor lr (of_d d + of_v v); `v` is left alone where mu is 0.
    runs: rows of group, start, stop.
    """
    for run in range(len(runs)):
        group, start, stop = runs[run]
        lr, decay, mu, of_d, of_v = numbers[group]
        lr *= factor
        ws, gs, vs, outs = w[start:stop], g[start:stop], v[start:stop], out[start:stop]
        if mu == 0:
            for i in range(len(ws)):
                outs[i] = ws[i] - lr * (scale * gs[i] + decay * ws[i])
        else:
            for i in range(len(ws)):
                d = scale * gs[i] + decay * ws[i]
                b = mu * vs[i] + d
                vs[i] = b
                outs[i] = ws[i] - lr * (of_d * d + of_v * b)
