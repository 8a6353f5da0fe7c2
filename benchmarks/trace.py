"""What the trace costs a worker, against its step.

python benchmarks/trace.py [--steps 10] [--rounds 9] [--models mlp,lenet,cnn]

A step of BSP leaves three records of the worker (computing, waiting, communicating) and its part of two of the server
(an update, a decision to wait). In turn, in one process of one thread:

  step    forward and backward of the model, a batch of 32, on random data (mlp: images as of digits)
  trace   what the worker does for the records of such a step: keeps them, and puts them into messages, those of a
          quarter of a second at once

The claim is that the second is at most 1 % of the first. Besides, without a claim: what the coordinator does with the
records of one worker's step (reads them, counts, writes them to disk), which costs no worker anything unless all share
one core, and how many bytes they take.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from _verdict import verdict
from torch import nn

from paceline.bench.report import conditions
from paceline.core.coordination.party import Party, worker
from paceline.core.trace import Applied, Decided, Record
from paceline.engine import models
from paceline.engine.specs import ModelRecipe
from paceline.live.control.reports import REPORT_SECONDS, Reports, records_of
from paceline.live.numpy_memory import PlainMemory
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope
from paceline.observe.trace.trace_file import TraceWriter

BOUND = 0.01
BATCH = 32
SHAPES = {"mlp": (1, 8, 8), "lenet": (1, 28, 28)}
SHAPE = (3, 32, 32)
RECORDED = 2000


def step_of(model: str) -> Callable[[], None]:
    shape = SHAPES.get(model, SHAPE)
    module = models.build(ModelRecipe(name=model), shape, 10, 1)
    x, y = torch.randn(BATCH, *shape), torch.randint(10, (BATCH,))
    loss_of = nn.CrossEntropyLoss()

    def step() -> None:
        module.zero_grad()
        loss_of(module(x), y).backward()

    return step


def reporting(send: Callable[[Party, Envelope], object]) -> Reports:
    transport: Any = SimpleNamespace(send=send)
    return Reports(transport, worker(1), threading.Event())


def a_step(reports: Reports, n: int) -> None:
    """As a worker reports it."""
    at = 0.123456789 * n
    reports.spent(at, "computing", 0.0123456, 1, BATCH, exchanges=1)
    reports.spent(at + 0.01, "waiting", 0.0012345)
    reports.spent(at + 0.01, "communicating", 0.0012345, hidden=0.001)


def of_the_server(n: int) -> Iterator[Record]:
    """An update is one for all workers, and so is more than this worker's part."""
    yield Applied(at=0.1 * n, shard=0, ranks=(0, 1, 2, 3), version=n, staleness=0, weight=1.0, samples=4 * BATCH)
    yield Decided(at=0.1 * n, party="server 0", rank=1, verdict="wait", reason="waits for worker 3", whom=(3,))


def seconds(work: Callable[[], object], count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begun) / count


def seconds_of_trace(steps: int) -> float:
    """The frames are made, as a connection would before it hands them to the kernel."""
    reports = reporting(lambda _to, envelope: frames.encode(envelope, PlainMemory()))
    begun = time.perf_counter()
    for n in range(steps):
        a_step(reports, n)
    reports.flush()
    return (time.perf_counter() - begun) / steps


def pair(step: Callable[[], None], steps: int) -> tuple[float, float]:
    of_step = seconds(step, steps)
    return of_step, seconds_of_trace(max(1, round(REPORT_SECONDS / of_step)))


def coordinator() -> tuple[float, float]:
    """Seconds and bytes on disk, of the records of one worker's step and of the server's."""
    messages: list[Any] = []
    reports = reporting(lambda _to, envelope: messages.append(envelope.message))
    for n in range(RECORDED):
        a_step(reports, n)
    reports.flush()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        begun = time.process_time()  # the writer's thread is of this process too
        with TraceWriter(path, bytes_max=1 << 29) as writer:
            for message in messages:
                for record in records_of(message.lines):
                    writer.append(record)
            for n in range(RECORDED):
                for record in of_the_server(n):
                    writer.append(record)
        return (time.process_time() - begun) / RECORDED, path.stat().st_size / RECORDED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of a block")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of blocks")
    parser.add_argument("--models", default="mlp,lenet,cnn", help="names separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{conditions()}, one thread, {options.rounds} rounds of {options.steps} steps")
    print(f"{'model':<10} {'step':>11} {'trace':>9} {'share':>7}")
    worst = 0.0
    for name in options.models.split(","):
        step = step_of(name)
        step()
        pairs = [pair(step, options.steps) for _ in range(options.rounds)]
        of_step, of_trace = (statistics.median(side) for side in zip(*pairs, strict=True))
        worst = max(worst, of_trace / of_step)
        print(f"{name:<10} {1e3 * of_step:>8.2f} ms {1e6 * of_trace:>6.1f} us {of_trace / of_step:>7.2%}", flush=True)
    cost, size = coordinator()
    print(f"coordinator: {1e6 * cost:.0f} us and {size:.0f} bytes for a step of one worker")
    return verdict(f"worst share {worst:.2%}, claimed at most {BOUND:.0%}", worst <= BOUND)


if __name__ == "__main__":
    sys.exit(main())
