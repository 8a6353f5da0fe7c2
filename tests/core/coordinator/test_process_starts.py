"""A process that is started during training has to say Hello in time, in simulated seconds."""

from __future__ import annotations

import pytest

from paceline.core.coordination.decisions import ProcessUnheard, Timer
from paceline.core.coordination.party import EVALUATOR, Party, server
from tests.core.coordinator.test_machine import W0, W1, Driver, hello


def unheard(driver: Driver, at: float) -> list[ProcessUnheard]:
    driver.now = at
    driver.machine.rang(Timer.MEMBERS, 0)
    return [action for action in driver.taken() if isinstance(action, ProcessUnheard)]


@pytest.fixture
def driver() -> Driver:
    """A run that trains. Worker 1 was lost at 1 s, and its next process was started at 2 s."""
    driver = Driver(start_after_s=30.0).trains()
    driver.now = 1.0
    driver.machine.lost(W1, "connection reset")
    driver.now = 2.0
    driver.machine.starts.started(W1, 1)
    driver.taken()
    return driver


def test_one_that_hangs_before_its_hello_is_given_up_once(driver: Driver) -> None:
    assert unheard(driver, 32.0) == []
    why = "worker 1 has not connected within 30 s of its start, and is killed"
    assert unheard(driver, 32.5) == [ProcessUnheard(W1, 1, why)]
    assert unheard(driver, 99.0) == []


def test_one_that_says_hello_is_watched_by_the_membership_from_then_on(driver: Driver) -> None:
    driver.now = 31.0
    driver.told(W1, hello(incarnation=1))
    assert unheard(driver, 33.0) == []


def test_one_whose_process_has_ended_is_waited_for_no_more(driver: Driver) -> None:
    driver.machine.starts.over(W1)
    assert unheard(driver, 99.0) == []


def test_each_restart_has_its_own_time(driver: Driver) -> None:
    driver.now = 20.0
    driver.machine.starts.over(W1)
    driver.machine.starts.started(W1, 2)
    assert unheard(driver, 45.0) == []
    assert [(u.who, u.incarnation) for u in unheard(driver, 50.5)] == [(W1, 2)]


@pytest.mark.parametrize(("who", "watched"), [(EVALUATOR, True), (server(0), False)])
def test_the_evaluator_is_watched_and_servers_are_the_business_of_their_recovery(who: Party, watched: bool) -> None:
    driver = Driver(start_after_s=30.0).trains()
    driver.machine.starts.started(who, 1)
    assert [u.who for u in unheard(driver, 31.0)] == [who] * watched


def test_before_training_everybody_waits_for_everybody_and_the_driver_has_the_deadline() -> None:
    driver = Driver(start_after_s=30.0)
    driver.machine.starts.started(W0, 1)
    driver.machine.starts.look()
    driver.now = 99.0
    driver.machine.starts.look()
    assert driver.taken() == []
