"""The summary file and the numbers that are worked out from a trace."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.core.trace import Applied, Ended, Gated
from paceline.observe.runs.summary import (
    Faults,
    Staleness,
    Summary,
    perplexity_of,
    read_summary,
    seconds_to_target,
    write_summary,
)
from tests.held_objects import held
from tests.observe.fake_runs import evaluations, summary, worker


def applied(staleness: int, *ranks: int, shard: int = 0, weight: float = 1.0) -> Applied:
    return Applied(at=0, shard=shard, ranks=ranks, version=1, staleness=staleness, weight=weight, samples=1)


def test_a_summary_comes_back_from_its_json_as_it_was() -> None:
    whole = summary(parameters={"staleness": 3, "weighting": "none"}, workers=2)
    gaps = summary(test_accuracy=None, target_accuracy=None, seconds_to_target=None, step_ms=None)
    for s in (whole, gaps):
        assert Summary.from_json(s.to_json()) == s


def test_a_summary_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run" / "summary.json"
    write_summary(summary("bsp"), path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_summary(summary("asp"), path)
    assert read_summary(path).scheme == "bsp"
    assert [entry.name for entry in path.parent.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"workers": []}', '{"workers": [1]}'])
def test_what_is_not_a_summary_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(PacelineError, match=r"summary\.json: not a summary") as caught:
        read_summary(tmp_path / "summary.json")
    assert "\n" not in str(caught.value)


def test_a_missing_summary_is_named() -> None:
    with pytest.raises(PacelineError, match=r"nowhere: the summary cannot be read"):
        read_summary("nowhere")


def test_the_time_to_target_is_that_of_the_first_evaluation_at_or_above_it() -> None:
    records = evaluations()
    assert seconds_to_target(records, records[4].accuracy) == records[4].at
    assert seconds_to_target(records, 0.99) is None
    assert seconds_to_target(records, None) is None
    assert seconds_to_target([], 0.5) is None


def test_staleness_is_taken_from_shard_0_for_every_rank_of_a_group() -> None:
    staleness = Staleness()
    for record in (applied(0, 0, 1), applied(4, 1), applied(9, 1, shard=1), Ended(at=1, reason="done")):
        staleness.add(record)
    assert (staleness.mean(0), staleness.max(0)) == (0, 0)
    assert (staleness.mean(1), staleness.max(1)) == (2, 4)
    assert (staleness.mean(2), staleness.max(2)) == (None, None)


def test_shares_add_up_to_one_and_are_zero_without_time() -> None:
    shares = summary(waiting=0.25).shares
    assert (shares.computing, shares.communicating, shares.waiting) == pytest.approx((0.65, 0.1, 0.25))
    idle = worker(0, seconds_computing=0, seconds_waiting=0, seconds_communicating=0).shares
    assert (idle.computing, idle.communicating, idle.waiting) == (0, 0, 0)


def test_the_mean_staleness_of_a_run_counts_a_worker_by_its_exchanges() -> None:
    fast = worker(0, exchanges=300, staleness_mean=1.0, staleness_max=2)
    slow = worker(1, exchanges=100, staleness_mean=5.0, staleness_max=9)
    assert summary(workers=0).staleness_mean is None
    assert summary().staleness_mean is None
    assert Summary.from_json(summary().to_json()).staleness_mean is None
    both = {**{name: getattr(summary(), name) for name in Summary.__slots__}, "workers": (fast, slow)}
    assert Summary(**both).staleness_mean == pytest.approx(2.0)


def test_the_share_hidden_is_of_all_communication_and_unknown_without_any() -> None:
    assert worker(0).hidden is None
    assert worker(0, seconds_communicating=1.0, seconds_hidden=3.0).hidden == 0.75
    busy = (worker(0, seconds_communicating=1.0, seconds_hidden=3.0), worker(1, seconds_communicating=2.0))
    assert summary(workers=2).hidden is None
    assert dataclasses.replace(summary(), workers=busy).hidden == 0.5


def test_a_target_may_be_a_loss_which_is_reached_from_above() -> None:
    seen = [replace(e, loss=loss) for e, loss in zip(evaluations(count=3), (0.0, 3.0, 2.4), strict=True)]
    assert seconds_to_target(seen, None, 2.5) == seen[2].at, "a loss of 0 was not reported"
    assert seconds_to_target(seen, None, 2.0) is None
    assert summary(target_accuracy=None, target_loss=2.5).target == "loss 2.5"
    assert summary(target_accuracy=0.9).target == "0.9"
    assert summary(target_accuracy=None).target is None


def test_perplexity_is_the_exponential_of_a_loss_that_is_a_number() -> None:
    assert perplexity_of(math.log(7)) == pytest.approx(7)
    assert [perplexity_of(loss) for loss in (None, math.nan, math.inf, 1e4)] == [None] * 4


def test_faults_hold_no_more_in_a_long_run() -> None:
    def after(count: int) -> Faults:
        faults = Faults()
        for number in range(count):
            for shard in (0, 1):
                faults.add(Gated(at=0.0, shard=shard, rank=0, number=number, refused=False, reason="far longer"))
        return faults

    assert after(50_000).wild(0) == 50_000, "one that both shards report counts once"
    assert held(after(50_000)) <= held(after(5_000)) + 10
