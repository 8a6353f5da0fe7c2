"""Copies from a GPU to the host while the GPU goes on computing.

The copy runs on a stream of its own, into page-locked memory. It begins when what the GPU was given so far is done.
What it is given meanwhile (the rest of a backward pass, the next forward) runs beside it. The host waits for the event
at the end of the copy, not for the device. The way back needs no such care: a copy onto the GPU is in order with what
uses it.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from paceline.engine.vectors.buffer_pool import spare


def to_host(tensor: Tensor, scale: float = 1.0) -> Tensor:
    """Returns a copy of `tensor` (on a GPU, 1-D, float32) times `scale`, in page-locked host memory, when it is
    complete.

    The caller keeps `tensor` until then.
    """
    out = spare(tensor.numel(), pinned=True)
    stream = _stream(tensor.device)
    stream.wait_stream(torch.cuda.current_stream(tensor.device))
    with torch.cuda.stream(stream):
        out.copy_(tensor, non_blocking=True)
        copied = stream.record_event()
    copied.synchronize()
    return out if scale == 1.0 else out.mul_(scale)


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Returns the stream of copies of a device; it is made once."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
