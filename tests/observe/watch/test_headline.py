"""What the headline says: of a run that goes on, one that has just begun, one that is over, and one that failed."""

from __future__ import annotations

from paceline.core.trace import Ended, MemberChange, Span
from paceline.observe.watch.headline import headline
from paceline.observe.watch.state import PageState
from tests.observe.watch.played import simulated


def test_a_run_that_has_just_begun_says_what_it_waits_for_itself() -> None:
    state = PageState(2)
    assert headline(state)["sentence"] == "No worker has finished a step yet."
    state.add(Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=8))
    told = headline(state)
    assert told["sentence"] == "Training has begun. After 10 exchanges it shows who waits for whom."
    assert (told["title"], told["tone"]) == ("Who holds whom up", "calm")


def test_a_run_that_goes_on_names_a_cause_with_its_numbers() -> None:
    told = headline(simulated("bsp", (1, 1, 1, 4)))
    assert told["tone"] == "held"
    assert told["sentence"].startswith(
        "Worker 3 holds the others up: they waited 75% of the last 7 s for it. A step takes it 80 ms, "
        "the others at most 20 ms. Without it they would make 3.9 times the steps."
    )
    assert told["without"] > 3.9 * told["others"]
    told = headline(simulated("asp", (1, 1, 1, 4)))
    assert (told["tone"], told["kind"]) == ("calm", "nobody")
    assert told["sentence"].startswith("Nobody holds anybody up: the workers waited 0% of the last ")


def test_of_a_run_that_is_over_it_says_why_and_what_held_it_up() -> None:
    state = simulated("bsp", (1, 1, 1, 4))
    state.add(Ended(at=state.now, reason="steps"))
    told = headline(state)
    assert (told["title"], told["tone"]) == ("The run is over", "over")
    assert told["sentence"].startswith(
        "It ended after 8.0 s (steps). Worker 3 held the others up: they waited 75% of the last 7 s of the run for it."
    )


def test_a_run_that_failed_says_its_cause_and_nothing_else() -> None:
    state = simulated("bsp", (1, 1, 1, 4))
    state.add(MemberChange(at=state.now, party="worker 2", event="lost", reason="killed"))
    state.add(Ended(at=state.now, reason="failed: worker 2 was lost: killed by signal 9"))
    told = headline(state)
    assert (told["title"], told["tone"]) == ("The run has failed", "failed")
    assert told["sentence"] == "worker 2 was lost: killed by signal 9"
    assert told["ranks"] == []
