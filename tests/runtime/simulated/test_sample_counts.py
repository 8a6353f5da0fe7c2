"""What virtual workers know of the samples of all."""

from __future__ import annotations

from typing import Any

from paceline.launch.local.train import Silent
from paceline.runtime.simulated.simulated_run import VirtualRun
from tests.runtime.simulated.virtual_runs import setting


def test_the_schedule_of_a_worker_that_updates_alone_counts_what_all_have_seen() -> None:
    virtual = VirtualRun(setting("adpsgd", on={"servers": 0}, stop={"steps": 20, "epochs": 0}), Silent())
    own = {w.rank: w.samples for w in virtual.run(leave=False).workers}
    rules: list[Any] = [virtual.simulation.worker(rank).update for rank in own]
    assert all(rule.samples_seen > seen for rule, seen in zip(rules, own.values(), strict=True))
