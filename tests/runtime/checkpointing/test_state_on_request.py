"""Servers show a worker their slices as of the moment when it asks, whole, and free what was read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.core.coordination import party
from paceline.core.errors import Undone
from paceline.core.sharding import Layout
from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import kept
from paceline.runtime.checkpointing.slice_capture import WEIGHTS
from paceline.runtime.checkpointing.state_on_request import ServerState, read_servers
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def test_vectors_of_all_slices_are_joined_in_the_models_order(out: Path) -> None:
    found: list[ServerState] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, toy_data())
        run, flat = pace._worker.run, pace._worker.model.flat
        layout: Layout = run.plan.layout
        assert len(set(layout.holders)) == 3
        found.extend(read_servers(run.node, run.rank, layout, flat.tensors) for _ in range(2))
        assert torch.equal(found[0].vectors[WEIGHTS], nn.utils.parameters_to_vector(model.parameters()))

    run_loops(out, "bsp", loop, workers=1, servers=3, optimizer=adam)
    first, second = found
    assert {len(v) for v in first.vectors.values()} == {len(first.vectors[WEIGHTS])}
    assert len(first.vectors) >= 3, "Adam has two vectors beside the weights"
    assert first.numbers == second.numbers
    assert first.numbers["samples_seen"] == 2 * len(toy_data())


def test_a_vector_is_kept_until_it_was_read_and_of_each_worker_by_itself(out: Path) -> None:
    def loop(pace: Pace, _: nn.Module) -> None:
        node = pace._worker.run.node
        node.read_published_of(party.server(0), kept("loop 0", STATE))
        node.read_published_of(party.server(0), kept("loop 0", WEIGHTS))
        with pytest.raises(Undone):  # worker 1 has asked for nothing
            node.read_published_of(party.server(0), kept("loop 1", WEIGHTS))

    run_loops(out, "asp", loop, workers=1)
