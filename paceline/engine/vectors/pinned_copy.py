"""Copies from a GPU to the host while the GPU goes on computing.

The copy runs on a stream of its own, into page-locked memory. It begins when what the GPU was given so far is done.
What it is given meanwhile (the rest of a backward pass, the next forward) runs beside it. The host waits for the event
at the end of the copy, not for the device.

The way back is in order with what uses it, and the host does not wait at all. Memory of another process that is copied
must not be given back before the GPU has read it, so it is held until then.
"""

from __future__ import annotations

import functools
from collections import deque

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


_being_read: deque[tuple[torch.cuda.Event, Tensor]] = deque()  # host memory that GPUs may still be reading


def to_gpu(tensor: Tensor, out: Tensor) -> None:
    """Copies `tensor`, in host memory, over `out` on a GPU, in order with what reads it there.

    Its memory is held until that is done, or until the next call.
    """
    out.copy_(tensor, non_blocking=True)
    _being_read.append((torch.cuda.current_stream(out.device).record_event(), tensor))
    while _being_read:
        try:
            copied, one = _being_read.popleft()
        except IndexError:  # another thread was faster
            return
        if not copied.query():  # type: ignore[no-untyped-call]
            _being_read.appendleft((copied, one))
            return


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Returns the stream of copies of a device; it is made once."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
