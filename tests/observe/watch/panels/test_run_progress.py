"""How far a run is."""

from __future__ import annotations

import pytest

from paceline.observe.watch.panels.run_progress import RunFacts, progress


@pytest.mark.parametrize(
    ("facts", "done", "left_s"),
    [
        (RunFacts(), None, None),
        (RunFacts(samples=400), 0.25, 30.0),
        (RunFacts(seconds=40.0), 0.25, 30.0),
        (RunFacts(steps=20), 0.5, 10.0),
        (RunFacts(samples=400, steps=20), 0.5, 10.0),  # it ends at the first of them
        (RunFacts(samples=50), 1.0, 0.0),
    ],
)
def test_the_nearest_end_says_what_is_left(facts: RunFacts, done: float | None, left_s: float | None) -> None:
    told = progress(facts, now=10.0, samples=100, steps=10, ended=False)
    assert (told["done"], told["left_s"]) == (done, left_s)


def test_nothing_is_left_of_a_run_that_is_over_and_nothing_is_foretold_at_its_beginning() -> None:
    facts = RunFacts(samples=400)
    assert progress(facts, now=10.0, samples=100, steps=1, ended=True)["left_s"] is None
    assert progress(facts, now=0.0, samples=0, steps=0, ended=False)["left_s"] is None


def test_epoch_and_rate_go_by_the_samples_of_all() -> None:
    facts = RunFacts(epoch_samples=80, learning_rate=lambda samples: 0.1 / (1 + samples))
    told = progress(facts, now=1.0, samples=99, steps=1, ended=False)
    assert told["epoch"] == 1.24
    assert told["rate"] == 0.001
    assert progress(RunFacts(), now=1.0, samples=99, steps=1, ended=False)["epoch"] is None
