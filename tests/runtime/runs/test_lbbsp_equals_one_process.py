"""With batches of unlike and changing sizes the result is that of one process with all of them put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.trace import Span
from paceline.engine.data.batches import Batches
from paceline.engine.data.partition_plan import make_partition
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.worker.train_loop import build_model, load_data
from tests.runtime.conftest import Runner
from tests.runtime.one_process import Weights, assert_same, config_for, saved, torch_optimizer

STEPS = 12
GLOBAL = 70


def sizes_of(out: Path, workers: int) -> list[list[int]]:
    """By round, then by rank, as the workers noted them; the exchange after the last step has a span without steps."""
    spans = [
        r for r in read_trace(out / "trace.jsonl") if isinstance(r, Span) and r.activity == "computing" and r.steps
    ]
    by_rank = [[r.samples for r in spans if r.rank == rank] for rank in range(workers)]
    return [list(sizes) for sizes in zip(*by_rank, strict=True)]


def one_process(config: Any, rounds: list[list[int]]) -> Weights:
    splits = load_data(config)
    model = build_model(config, splits)
    optimizer = torch_optimizer(config, model)
    workers = config.cluster.workers
    shares = make_partition("uniform", len(splits.train), workers, None, config.run.seed)
    streams = [Batches(splits.train, shares, rank, 1) for rank in range(workers)]
    for sizes in rounds:
        batches = [batch for stream, size in zip(streams, sizes, strict=True) if (batch := stream.take(size))]
        optimizer.zero_grad()
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("fabric", [{"servers": 1}, {"servers": 3}, {"servers": 0}])
def test_with_batches_that_follow_the_speeds_it_is_one_process(runner: Runner, out: Path, fabric: dict) -> None:
    config = config_for(
        out,
        steps=STEPS,
        scheme="lbbsp",
        workers=3,
        lbbsp={"global_batch": GLOBAL, "hysteresis": 0.0},
        cluster={"slowdown": [1, 2, 4], "step_ms": 10},
        optimizer={"momentum": 0.9},
        data={"batch_size": 24},
        **fabric,
    )
    runner(config)
    rounds = sizes_of(out, 3)
    assert len(rounds) == STEPS
    assert {sum(sizes) for sizes in rounds} == {GLOBAL}
    fast, _, slow = map(sum, zip(*rounds, strict=True))  # a single round may follow a stall
    assert fast > slow
    assert_same(saved(config), one_process(config, rounds))


@pytest.mark.parametrize("servers", [0, 1])
def test_no_batch_is_larger_than_its_workers_largest_and_the_global_batch_stays(
    threads: Runner, out: Path, servers: int
) -> None:
    """The fast worker would have three quarters of the samples, and may have 20."""
    config = config_for(
        out,
        steps=STEPS,
        scheme="lbbsp",
        servers=servers,
        lbbsp={"global_batch": 48, "hysteresis": 0.0},
        cluster={"slowdown": [1, 3], "step_ms": 10, "batch_limits": [20, 0]},
        data={"batch_size": 24},
    )
    threads(config)
    assert sizes_of(out, 2) == [[20, 28]] * STEPS
