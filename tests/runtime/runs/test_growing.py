"""Workers that come while training goes on, to a run that began with fewer than it has places for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from paceline.config import build
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.trace import Decided, Evaluated, MemberChange
from paceline.observe.runs.summary import Summary
from paceline.observe.trace.trace_file import TRACE, read_trace
from paceline.runtime.worker.lifecycle import WorkerLifecycle
from tests.runtime.conftest import in_threads
from tests.runtime.one_process import config_for


def grown(
    out: Path, scheme: str, *, initial_workers: int = 2, workers: int = 4, steps: int = 200, **more: Any
) -> Summary:
    """In threads: those who are not there at the beginning come as soon as training has started."""
    cluster = {"initial_workers": initial_workers, "step_ms": 5.0, **more}
    config = config_for(out, scheme=scheme, steps=steps, workers=workers, servers=2, cluster=cluster)
    return in_threads(config, accept_joins=True)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "gsp", "gosgd"])
def test_two_begin_two_more_come_and_all_four_train_one_model(out: Path, scheme: str) -> None:
    summary = grown(out, scheme)
    assert [worker.rank for worker in summary.workers] == [0, 1, 2, 3]
    assert [worker.incarnations for worker in summary.workers] == [1] * 4
    assert all(worker.steps for worker in summary.workers)
    trace = list(read_trace(out / TRACE))
    came = [
        (record.party, record.reason)
        for record in trace
        if isinstance(record, MemberChange) and "first" in record.reason
    ]
    assert sorted(who for who, _ in came) == ["worker 2", "worker 3"]
    reasons = ["its first incarnation; 3 of 4 train", "its first incarnation; 4 of 4 train"]
    assert [reason for _, reason in came] == reasons
    lost = [record for record in trace if isinstance(record, MemberChange) and record.event == "lost"]
    assert lost == []
    assert [record.accuracy for record in trace if isinstance(record, Evaluated)][-1] > 0.3


def test_nobody_waits_for_those_who_do_not_come(threads: Any, out: Path) -> None:
    summary = threads(config_for(out, steps=10, workers=4, cluster={"initial_workers": 2}))
    assert [(worker.rank, worker.steps) for worker in summary.workers] == [(0, 10), (1, 10)]
    waits = [record for record in read_trace(out / TRACE) if isinstance(record, Decided) and {2, 3} & set(record.whom)]
    assert waits == []


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"cluster": {"initial_workers": 5}}, "--initial-workers 5: --workers 4 is the maximum"),
        ({"cluster": {"initial_workers": 2, "servers": 0}}, "--servers 0 the workers average among themselves"),
        (
            {"cluster": {"initial_workers": 2, "allreduce": "ring"}, "run": {"scheme": "esync"}},
            "--allreduce ring the workers average",
        ),
        ({"cluster": {"initial_workers": 1, "min_workers": 2}}, "--min-workers 2 would not be there"),
        ({"cluster": {"initial_workers": 2}, "checkpoint": {"resume": "auto"}}, "begins with all workers"),
        (
            {"cluster": {"initial_workers": 2}, "compression": {"up": "powersgd"}, "run": {"scheme": "esync"}},
            "would not have the factors of powersgd",
        ),
    ],
)
def test_where_nobody_can_come_late_that_is_said_before_anything_starts(sections: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build(sections)


def test_a_newcomer_that_hangs_is_noticed_while_the_others_wait_for_it(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has joined, its process is heard, and it never begins: bsp waited for it until `--timeout`."""
    take_over = WorkerLifecycle._take_over

    def hangs(self: WorkerLifecycle, plan: Any, update: Any) -> Any:
        if self._rank == 2:
            self._session.over.wait(60.0)  # a thread is not killed, but its connections are closed
            raise PeerLost("it was lost")
        return take_over(self, plan, update)

    monkeypatch.setattr(WorkerLifecycle, "_take_over", hangs)
    monkeypatch.setattr("paceline.core.coordinator.bring_up.WAIT_SECONDS", 1.0)
    summary = grown(out, "bsp", workers=3, steps=60, restarts=0)
    assert [worker.steps for worker in summary.workers if worker.rank < 2] == [60, 60]
    (lost,) = [r.reason for r in read_trace(out / TRACE) if isinstance(r, MemberChange) and r.event == "lost"]
    says = r"joined, and did not begin to train within [\d.]+ s; its log shows where it is stuck; 2 of 3 continue"
    assert re.fullmatch(says, lost), lost
