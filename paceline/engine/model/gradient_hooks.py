"""Learns which parameters have their gradient while backward still runs, so that it can be sent early.

Autograd calls a hook for every parameter whose gradient of one backward pass is complete (post-accumulate hooks), the
last layers first. What may be read early may not change any more. So a second backward pass before the gradient is
closed is refused, and so is whatever else writes into gradients in the meantime, such as clipping.

    open      the next backward pass makes a gradient that can be read part by part
    (hooks)   parameter i is complete: its part is there
    close     backward is over: parameters that it did not reach get a gradient of zero
    cancel    nobody reads this gradient early
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from paceline.core.errors import ConfigError
from paceline.core.spans import Span
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.chunked import ChunkedVector, Chunks

WAY_OUT = "give --overlap off, or leave overlap=True out of paceline.join"


class Backward:
    """Watches the backward passes of `flat`. It is not thread-safe: hooks run one after the other."""

    def __init__(self, flat: FlatModel) -> None:
        self._flat = flat
        flat.join_gradients()
        self._names = [name for name, _ in flat.layout()]
        self._missing: set[int] = set()
        self._parts: Chunks | None = None
        self._buffer: Tensor | None = None
        self._version = 0
        self.unused: list[Span] = []  # of the gradient that is under way; complete before its last part is there
        self.seconds = 0.0  # spent in `put` and `arrived`, which is not the user's backward
        self._arrived: Callable[[], None] = lambda: None
        self._hooks: list[RemovableHandle] = [
            p.register_post_accumulate_grad_hook(functools.partial(self._accumulated, i))  # type: ignore[no-untyped-call]
            for i, p in enumerate(flat.parameters)
            if p.requires_grad
        ]

    def open(self, what: str, arrived: Callable[[], None]) -> ChunkedVector:
        """Returns the gradient of the next backward pass. `arrived` is called whenever more of it is there."""
        self._parts, self._buffer = self._flat.lend_arriving(what)
        self._missing = set(range(len(self._names)))
        self._version, self._arrived = self._buffer._version, arrived
        self.unused = []
        return self._parts.vector

    def close(self) -> None:
        """Ends the gradient: parameters that backward did not reach have a gradient of zero.

        Raises ConfigError when gradients were changed after they could be read.
        """
        parts, buffer = self._parts, self._buffer
        assert parts is not None
        assert buffer is not None
        self._parts = self._buffer = None
        if buffer._version != self._version:
            raise ConfigError(
                "gradients were changed between backward and pace.step(), by clipping perhaps; with overlap they have "
                f"left by then: {WAY_OUT}"
            )
        missing = sorted(self._missing)
        for i in missing:
            self._flat.collect_one(i)
        self.unused += self._flat.unused_among(missing)  # before `put`, which lets the last slices leave
        for i in missing:
            parts.put(i)

    def cancel(self) -> None:
        """Gives up reading this gradient early; the user's code may change it as it likes."""
        self._parts = self._buffer = None

    def end(self) -> None:
        """Removes the hooks; the next gradient is made as if they had never been."""
        self.cancel()
        for hook in self._hooks:
            hook.remove()
        self._flat.separate_gradients()

    def _accumulated(self, i: int, _parameter: Any) -> None:
        """The hook: parameter `i` has its gradient. Raises ConfigError if it got one before in this gradient."""
        if self._parts is None or self._buffer is None:
            return
        if i not in self._missing:
            raise ConfigError(
                f"parameter {self._names[i]} got a gradient twice before pace.step(), and with overlap the first has "
                f"left by then; to add up several backward passes, {WAY_OUT}"
            )
        self._missing.discard(i)
        self._flat.collect_one(i)
        self._version = self._buffer._version
        began = time.monotonic()
        self._parts.put(i)
        self._arrived()
        self.seconds += time.monotonic() - began
