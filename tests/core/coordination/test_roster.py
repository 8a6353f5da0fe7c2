"""Everybody learns the addresses of the others."""

from __future__ import annotations

import dataclasses
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import worker
from paceline.core.coordination.roster import ProgressTotals, RunRoster
from paceline.core.trace import MemberChange
from tests.live.scripted_parties import Company


def test_everybody_learns_where_everybody_is(companies: Any) -> None:
    company: Company = companies()
    for who in company.everybody:
        company.say(who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu"))
    for who in company.everybody:
        assert company.hears(who).addresses == {str(other): f"hub:{other}" for other in company.everybody}
    joined = [record.party for record in company.ears.records if isinstance(record, MemberChange)]
    assert sorted(joined) == sorted(map(str, company.everybody))


def test_a_server_in_the_place_of_a_lost_one_learns_who_was_drained_and_may_be_asked_until_it_exits() -> None:
    """It hears when that process has ended, and must not take it for another loss."""
    run = RunRoster(3, 1, evaluator=False, not_started=())
    run.drained.add(worker(1))
    assert (run.roster(4).gone, run.roster(4).lost) == ((1,), ())
    run.lost.add(worker(1))
    assert (run.roster(4).gone, run.roster(4).lost) == ((1,), (1,))


def test_local_work_that_is_lost_with_its_worker_is_not_counted() -> None:
    totals = ProgressTotals()
    trained = dataclasses.replace(control.NOTHING, samples=28, steps=7, samples_alone=24, steps_alone=6)
    totals.told(0, trained)
    totals.told(1, trained)
    lost = totals.lost(1)
    assert lost is not None
    assert (lost.samples, lost.steps, totals.of(1), totals.samples) == (4, 1, 4, 32)
    assert totals.lost(1) is None
    totals.new_incarnation(1)
    assert totals.told(1, dataclasses.replace(control.NOTHING, samples=8)).samples == 12
    assert totals.samples == 40


def test_a_run_that_goes_on_counts_what_is_in_the_weights() -> None:
    totals = ProgressTotals(behind=100)
    for rank, before in enumerate((40, 90)):
        totals.told(rank, dataclasses.replace(control.NOTHING, samples=before + 8, samples_before=before))
    assert totals.samples == 116
