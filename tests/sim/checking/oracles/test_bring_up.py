"""What the oracle of bring-up finds."""

from __future__ import annotations

import pytest

from paceline.sim.checking.oracles.bring_up import BringUpOracle


def oracle() -> BringUpOracle:
    return BringUpOracle(AssertionError, ["worker 0", "server 0"])


def brought_up() -> BringUpOracle:
    """An oracle that has seen a run begin."""
    seen = oracle()
    for name in ("server 0", "worker 0"):
        seen.told(name, "Roster")
    for name in ("server 0", "worker 0"):
        seen.told(name, "Plan")
        seen.took_up(name)
    seen.begins()
    for name in ("server 0", "worker 0"):
        seen.told(name, "Go")
    return seen


def test_a_run_that_begins_in_order_is_none_of_its_business() -> None:
    for name in ("server 0", "worker 0"):
        brought_up().told(name, "Finish")


def test_what_is_told_twice_or_out_of_order_is_found() -> None:
    seen = oracle()
    with pytest.raises(AssertionError, match=r"worker 0 is told Plan after \[\]"):
        seen.told("worker 0", "Plan")
    seen.told("worker 0", "Roster")
    with pytest.raises(AssertionError, match="worker 0 is told Roster after"):
        seen.told("worker 0", "Roster")
    with pytest.raises(AssertionError, match="worker 0 is told Finish, and has been told"):
        seen.told("worker 0", "Finish")
    with pytest.raises(AssertionError, match="worker 0 is told Go after"):
        brought_up().told("worker 0", "Go")
    brought_up().told("worker 0", "Finish")


def test_a_worker_that_has_its_plan_before_a_server_is_found() -> None:
    seen = oracle()
    seen.told("worker 0", "Roster")
    with pytest.raises(AssertionError, match="worker 0 is told Plan, and server 0 has not taken up its plan"):
        seen.told("worker 0", "Plan")


def test_go_before_somebody_has_taken_up_its_plan_is_found() -> None:
    seen = oracle()
    for what in ("Roster", "Plan"):
        seen.told("server 0", what)
    seen.took_up("server 0")
    with pytest.raises(AssertionError, match="server 0 is told Go, and worker 0 has not taken up its plan"):
        seen.told("server 0", "Go")


def test_who_joins_later_hears_nothing_before_the_run_has_begun() -> None:
    with pytest.raises(AssertionError, match="worker 1 is told Roster, and the run that it is to join has not begun"):
        oracle().newcomer_told("worker 1", "Roster")
    brought_up().newcomer_told("worker 1", "Roster")


def test_a_run_may_fail_before_it_trains_only_if_somebody_has() -> None:
    with pytest.raises(AssertionError, match="nobody has failed: lost worker 0"):
        oracle().failed("lost worker 0: it left", dead=["worker 1"], now=9.0)
    oracle().failed("lost worker 0: it left", dead=["worker 0"], now=9.0)
    cut_off = oracle()
    cut_off.gone("worker 0")
    cut_off.failed("lost worker 0: its connection was reset", dead=[], now=9.0)
    brought_up().failed("lost server 0: it was silent", dead=[], now=9.0)
    with pytest.raises(AssertionError, match="nobody needs the evaluator"):
        brought_up().failed("lost evaluator: it was silent", dead=["evaluator"], now=9.0)


def test_a_process_that_says_hello_is_answered() -> None:
    seen = brought_up()
    seen.came(("worker 1", 0))
    seen.over(living=[])
    with pytest.raises(AssertionError, match="worker 1 has said Hello, and has never heard of the coordinator"):
        seen.over(living=[("worker 1", 0)])
    seen.heard(("worker 1", 0))
    seen.over(living=[("worker 1", 0)])
