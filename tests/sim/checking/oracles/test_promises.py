"""What the invariants take a scheme to promise, and what it says itself."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import make, names
from paceline.sim.checking.oracles.promises import EVERYBODY, Promised, promises_of
from paceline.sim.fuzzing.random_parameters import schemes_of

BY_PHASE = "bsp until 3 steps; ssp(staleness=2) until 4 steps; ksync(k=2)"


@pytest.mark.parametrize("seed", range(8))
def test_no_scheme_declares_another_bound_than_its_parameters_promise(seed: int) -> None:
    for scheme in schemes_of(seed, names()):
        if scheme.max_ahead() is not None:
            assert [promise.ahead for promise in promises_of(scheme)] == [scheme.max_ahead()]


def test_of_every_scheme_with_servers_something_is_promised() -> None:
    kept = [scheme for scheme in schemes_of(0, names()) if scheme.name != "hybrid" and scheme.server(2)]
    assert len(kept) >= 11
    assert [scheme.name for scheme in kept if promises_of(scheme) == (Promised(),)] == []


def test_k_is_that_of_the_parameters_and_no_more_than_are_present() -> None:
    (promise,) = promises_of(make("ksync", {"k": 3}))
    assert [promise.contributions(present) for present in (5, 3, 2)] == [3, 3, 2]
    (promise,) = promises_of(make("ksync", {}))
    assert [promise.contributions(present) for present in (5, 2, 1)] == [4, 1, 1]
    (promise,) = promises_of(make("ksync", {"k": 3, "variant": "batch"}))
    assert promise.contributions(2) == 3


def test_a_merge_is_waited_for_unless_its_window_may_end_before_the_quorum_is_there() -> None:
    waits = {
        (k, tau): promises_of(make("decoupled", {"quorum": k, "tau": tau}))[0].waits for k in range(3) for tau in (0, 2)
    }
    assert {at for at, kept in waits.items() if not kept} == {(0, 2), (2, 2)}


def test_every_phase_has_a_promise_of_its_own() -> None:
    bsp, ssp, ksync = promises_of(make("hybrid", {"phases": BY_PHASE}))
    assert (bsp.ahead, ssp.ahead, ksync.together) == (0, 2, 2)
    assert bsp.together == EVERYBODY
