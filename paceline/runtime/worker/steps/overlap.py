"""Communication while a worker computes: a gradient leaves as backward makes it, weights come as forward needs them.

While backward runs, the scheme is resumed with a gradient that is still arriving (`Compute.streams`). The slices of its
push leave one after the other, those of the last layers first, and `step()` carries out the rest of the exchange. A box
that does not look at the reply's scalars goes on with the first slice of new weights (`Call.streams`); each layer of
the next forward then waits for its own.

A gradient leaves early where it is that of one mini-batch, and the loop takes its batches from `Pace.batches`, so that
it is known how many samples are behind it. Everywhere else it leaves with `step()`. Which steps overlap is decided in
`overlap_choice.py`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import cast

from paceline.core.effects import Compute, Computed, Data, Train
from paceline.core.errors import ConfigError, Stopped
from paceline.core.spans import Spans
from paceline.core.vector import Arrival
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.gradient_hooks import WAY_OUT, Backward
from paceline.engine.vectors.chunked import ChunkedVector
from paceline.live.node.node import Node


class Overlap:
    """Overlaps the exchange of one worker with its computation.

    `samples` returns the samples of the mini-batch at hand, 0 if nobody knows; `data` returns which they are.
    """

    def __init__(self, flat: FlatModel, node: Node, samples: Callable[[], int], data: Callable[[], Data]) -> None:
        self._node, self._samples, self._data = node, samples, data
        self._backward = Backward(flat)
        self._g: ChunkedVector | None = None
        self._weights: Arrival | None = None  # of those that the loop computes at, if they were promised
        self._waited_before = 0.0
        self._announced = 0  # samples, once the scheme has been resumed

    def prepare(self, wanted: Compute | Train) -> None:
        """Prepares the forward pass for `wanted`; the gradients are clean."""
        self._announced = 0
        self._backward.seconds = 0.0
        self._weights = getattr(wanted.w, "arrival", None) if isinstance(wanted, Compute) else None
        self._waited_before = self._seconds_waited()
        if isinstance(wanted, Compute) and wanted.streams and wanted.steps == 1:
            self._g = self._backward.open("a gradient", self._arrived)

    def _arrived(self) -> None:
        """Resumes the scheme while backward runs, as soon as some of the gradient is there."""
        arriving = self._weights is not None and not self._weights.there
        if self._g is None or arriving:  # every server has answered before it is asked again
            return
        g, self._g = self._g, None
        self._announced = self._samples()
        if self._announced:
            with contextlib.suppress(Stopped):  # `finish` raises it again
                unused = cast(Spans, self._backward.unused)  # filled in before the last of g is there
                self._node.begin(Computed(g, self._announced, math.nan, self._data(), unused))
        else:
            self._backward.cancel()

    @property
    def announced(self) -> bool:
        """Returns True if some of the gradient may have left already."""
        return self._announced > 0

    def seconds_lost(self) -> float:
        """Returns the seconds that the loop spent on sending and waiting since `prepare`, or since this was called
        last."""
        before, self._waited_before = self._waited_before, self._seconds_waited()
        return self._waited_before - before + self._backward.seconds

    def _seconds_waited(self) -> float:
        """Returns the seconds that forward has waited for weights so far."""
        return self._weights.seconds_waited if self._weights else 0.0

    def handed_over(self, samples: int) -> bool:
        """Returns True if the scheme already has the gradient of the backward that is over.

        Raises ConfigError when it should not have it: the gradient was not of so many `samples`, or was changed
        afterwards.
        """
        if not self._announced:
            self._g = None
            self._backward.cancel()
            return False
        if samples != self._announced:
            raise ConfigError(
                f"pace.step({samples}) after a batch of {self._announced} from pace.batches, which has been announced "
                f"with the gradient: {WAY_OUT}"
            )
        self._backward.close()
        return True

    def finish(self) -> Compute | Train:
        """Carries out the rest of the exchange, and returns the next piece of work. Raises as `Node.finish` does."""
        return self._node.finish(time.monotonic(), self._backward.seconds)

    def end(self) -> None:
        """Removes the hooks from the module."""
        self._backward.end()
