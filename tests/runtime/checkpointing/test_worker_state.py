"""Residuals, clocks and positions of workers come back from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.runtime.checkpointing.resume import find
from paceline.runtime.checkpointing.worker_state import residuals
from tests.runtime.conftest import Runner
from tests.runtime.one_process import resumed


def test_workers_keep_their_residuals_clocks_and_places_in_the_data(threads: Runner, out: Path) -> None:
    how: dict[str, Any] = {"scheme": "asp", "compression": {"up": "topk(ratio=0.1)", "exact_below": 0}}
    threads(resumed(out, 7, **how, servers=2))
    start, _ = find(resumed(out, 12, "auto", **how))
    memories = start.memories(1)
    assert memories is not None
    assert (memories.entry.steps, memories.entry.position, start.clock(1)) == (7, 7 * 32, 7)
    residual = memories.tensors["residual.Push.0.g"]
    assert residual.count_nonzero() > 0
    for slices in ([slice(0, len(residual))], [slice(0, 100), slice(100, len(residual))]):
        cut = residuals(memories, slices)
        assert [len(of.left) for of in cut.values()] == [part.stop - part.start for part in slices]
    summary = threads(resumed(out, 12, "auto", **how))  # with one server
    assert [worker.steps for worker in summary.workers] == [12, 12]
