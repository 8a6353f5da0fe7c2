"""All that belongs to a seed is played; several processes give what one gives, in the same order."""

from __future__ import annotations

import itertools
import os

import psutil
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import PacelineError
from paceline.runtime.fuzzing import checkpoint_faults, leader_loss, seed_runs
from paceline.runtime.fuzzing.leader_loss import LeaderPlan
from paceline.runtime.fuzzing.seed_runs import PlayedSeed, in_order, play_seed, seeds
from paceline.sim.fuzzing.fuzz import FuzzPlan, draw
from paceline.sim.fuzzing.random_parameters import schemes_of
from tests.runtime.fuzzing.test_leader_loss import leases_begin_anew

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def plan_of(seed: int) -> FuzzPlan:
    return draw(seed, schemes_of(seed, ["asp", "bsp", "sgp"]))


def told(first: int, last: int, jobs: int) -> list[PlayedSeed]:
    return list(in_order(plan_of, first, last, None, jobs))


def test_every_so_many_th_seed_up_to_the_last() -> None:
    assert list(seeds(3, 9, None, 2)) == [3, 5, 7]
    assert list(itertools.islice(seeds(3, None, None), 3)) == [3, 4, 5]
    assert list(seeds(0, None, 0.0)) == [], "the time is up"


@pytest.mark.parametrize("jobs", [2, 3])
def test_several_processes_give_what_one_gives_in_the_same_order(jobs: int) -> None:
    one = told(4, 12, 1)
    assert [played.seed for played in one] == list(range(4, 12))
    assert sum(played.events for played in one) > 1000
    assert told(4, 12, jobs) == one


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_the_first_violation_by_its_seed_is_the_last_that_is_told(jobs: int, monkeypatch: Patch) -> None:
    """With three processes that of seed 6 is found by another one than that of seed 7, and perhaps later."""
    play = seed_runs.play

    def broken(plan: FuzzPlan, *, digest: bool) -> object:
        if plan.seed in (6, 7):
            raise RuntimeError("it breaks")
        return play(plan, digest=digest)

    monkeypatch.setattr(seed_runs, "play", broken)
    found = told(4, 12, jobs)
    assert [played.seed for played in found] == [4, 5, 6]
    assert (found[-1].failure, found[-1].failed) == ("RuntimeError: it breaks", plan_of(6))


def test_a_violation_says_which_of_the_runs_has_failed(monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        leases_begin_anew(patch)
        found = told(0, 300, 2)[-1]
        assert isinstance(found.failed, LeaderPlan)
        assert "InvariantBroken" in found.failure
    assert not play_seed(plan_of(found.seed)).failure

    def broken(plan: object) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(checkpoint_faults, "play", broken)
    assert play_seed(plan_of(0)).failed == checkpoint_faults.draw(0)
    assert leader_loss.draw(plan_of(0)) is None


def test_a_process_that_ends_is_no_end_of_the_seeds(monkeypatch: Patch) -> None:
    mine = os.getpid()

    def ends(plan: FuzzPlan, **how: object) -> object:
        assert os.getpid() != mine
        os._exit(9)

    monkeypatch.setattr(seed_runs, "play", ends)
    with pytest.raises(PacelineError, match="a process that played seeds ended with 9; try again with fewer --jobs"):
        told(0, 4, 2)


def test_nobody_is_left_when_the_reader_stops() -> None:
    before = set(psutil.Process().children())  # other tests may have some
    results = in_order(plan_of, 0, None, None, 2)
    assert next(results).seed == 0
    assert len(set(psutil.Process().children()) - before) == 2
    results.close()  # type: ignore[attr-defined]
    assert set(psutil.Process().children()) <= before
