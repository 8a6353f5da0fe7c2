"""Makes forward and backward of a mini-batch in parts, from the moment at which a whole one does not fit into memory.

    96 samples do not fit     the gradients of the attempt are dropped, and it is made again in parts of 48
    48 do not fit either      in parts of 24
    the next batch of 96      in parts of 24 at once

A part counts by its samples, so the gradient is that of the whole batch: the sum of n_k / n times the mean of part k.
Other than with one pass are batch normalisation, which sees one part at a time, and what dropout draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from paceline.core.errors import ConfigError
from paceline.core.samples.batch_limits import bounded
from paceline.engine.accelerators import give_back_memory, is_out_of_memory
from paceline.engine.forward_samples import first_dimension
from paceline.engine.model.mixed_precision import WHOLE, BatchPart

LossOf = Callable[..., Tensor]
"""Returns the mean loss of a mini-batch."""


class Undo(NamedTuple):
    """Drops what an attempt has left. `why_not` returns why that is impossible, given whether there was a gradient
    before; `drop` does it."""

    why_not: Callable[[bool], str]
    drop: Callable[[], None]


class SplitBackward:
    """Makes the backward passes of one worker.

    size           samples of the largest part; 0 while whole batches fit
    has_gradient   returns True if there is a gradient of earlier batches
    undo           drops what an attempt has left
    split          is called before a step is made in parts
    report         hears of a new size, and at which one memory was exhausted
    """

    def __init__(
        self,
        size: int,
        device: torch.device,
        *,
        has_gradient: Callable[[], bool],
        undo: Undo,
        split: Callable[[], None],
        report: Callable[[int, int], None],
    ) -> None:
        self.size, self._device = size, device
        self._has_gradient, self._undo, self._split, self._report = has_gradient, undo, split, report

    def backward(self, loss_of: LossOf, batch: Sequence[Any], make: Callable[..., Tensor]) -> Tensor:
        """Leaves the gradient of `loss_of(*batch)` with the parameters, and returns the loss. `make`: makes the parts.

        Raises the error of the allocator where a single sample does not fit, or what an attempt has left cannot be
        dropped.
        """
        samples = first_dimension(tuple(batch)) or 1
        largest, exhausted = bounded(samples, self.size), 0
        adds = self._has_gradient()
        while True:
            parts = parts_of(samples, largest)
            if len(parts) > 1:
                self._split()
            try:
                loss = make(loss_of, *batch, parts=parts)
                break
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or largest < 2:
                    raise
                if why_not := self._undo.why_not(adds):
                    error.add_note(f"paceline: this step cannot be made again in parts: {why_not}")
                    raise
                exhausted = -(-samples // len(parts))
            # Only here are the frames of the attempt gone, and the activations that they held.
            self._undo.drop()
            give_back_memory(self._device)
            largest = exhausted // 2
        if exhausted:
            self.size = largest
            self._report(largest, exhausted)
        return loss


def parts_of(samples: int, largest: int) -> Sequence[BatchPart]:
    """Returns parts of at most so many samples, as equal as possible: 7 in parts of 3 are 3, 2 and 2."""
    if samples <= largest:
        return WHOLE
    count = -(-samples // largest)
    edges = [samples * k // count for k in range(count + 1)]
    return [BatchPart((stop - start) / samples, slice(start, stop)) for start, stop in itertools.pairwise(edges)]


def plain_backward(loss_of: LossOf, *batch: Any, parts: Sequence[BatchPart] = WHOLE) -> Tensor:
    """Leaves the gradient of `loss_of(*batch)` with the parameters, made part by part, and returns the loss."""
    samples, total = first_dimension(batch), None
    for part in parts:
        loss = loss_of(*(batch if len(parts) == 1 else _rows(batch, part.rows, samples)))
        if not isinstance(loss, Tensor):
            raise ConfigError(f"pace.backward: the loss must be a tensor, and is {type(loss).__name__}")
        loss = loss if len(parts) == 1 else loss * part.share
        loss.backward()  # type: ignore[no-untyped-call]
        total = loss.detach() if total is None else total + loss.detach()
    assert total is not None
    return total


def _rows(batch: Sequence[Any], rows: slice, samples: int | None) -> Any:
    """Returns these rows of all tensors of a batch, however nested, that have one row a sample."""
    of = lambda leaf: leaf[rows] if isinstance(leaf, Tensor) and leaf.dim() and leaf.size(0) == samples else leaf  # noqa: E731
    return tree_map(of, tuple(batch))
