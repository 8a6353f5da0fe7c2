"""What is checked of results that are NaN."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from paceline.core.collective.mean_server import Part
from paceline.core.paramserver.gated_server import Push
from paceline.core.role import Role, RoleContext
from paceline.core.trace import Gated
from paceline.core.vector import Ghost
from paceline.sim.checking.bad_results import BadResultsRecount
from paceline.sim.kernel.processes import SimulatedProcess
from paceline.sim.kernel.vectors import NotFinite


class Box(Role):
    def on(self, now: float, src: int, message: Any) -> Any:
        self.kept = self.scheme(message)
        return ()


def heard(*messages: tuple[int, Any], keeps: Any = lambda message: None, name: str = "server 0") -> BadResultsRecount:
    """An oracle for which worker 1 has bad results, after a party has heard these messages of these workers."""
    sim: Any = SimpleNamespace(bad_results=SimpleNamespace(ever={1}))
    recount = BadResultsRecount(sim, AssertionError)
    place = RoleContext(me=int(name[-1]), workers=(0, 1), w=Ghost(4), update=lambda w, g, samples: w)
    party = SimulatedProcess(name, Box(keeps, place), SimpleNamespace(), 0.0)  # type: ignore[arg-type]
    on = recount.listening(party)
    for src, message in messages:
        list(on(0.0, src, message))
    return recount


def push(number: int = 0, clock: int = 1) -> Push:
    g = NotFinite(4, number) if number else Ghost(4)
    return Push(g=g, clock=clock, samples=2, data=((0, 0, 2),))


def strike(rank: int) -> Gated:
    return Gated(at=0.0, shard=0, rank=rank, number=1, refused=True, reason="not finite")


@pytest.mark.parametrize(
    "keeps",
    [
        lambda message: message.g,
        lambda message: {1: message.g},
        lambda message: [(1, message.g * 2.0)],
        lambda message: SimpleNamespace(sum=Ghost(4) + message.g),
    ],
)
def test_no_server_and_no_worker_whose_results_are_finite_keeps_a_nan(keeps: Any) -> None:
    for name in ("server 0", "worker 0"):
        with pytest.raises(AssertionError, match=f"{name} keeps a NaN in kept"):
            heard((1, push(1)), keeps=keeps, name=name)
        heard((0, push()), keeps=keeps, name=name)
    heard((1, push(1)), keeps=keeps, name="worker 1")


def test_only_who_had_a_bad_result_has_strikes_and_is_to_be_expelled() -> None:
    recount = heard((1, push(1)))
    recount.gated(strike(1))
    recount.expels(1)
    assert recount.strikes[0, 1] == 1
    with pytest.raises(AssertionError, match="rejects a contribution of worker 0, which never had a bad result"):
        recount.gated(strike(0))
    with pytest.raises(AssertionError, match="worker 0 is to be expelled, which never had a bad result"):
        recount.expels(0)


def test_samples_may_be_left_out_once_two_bad_results_were_made_of_them() -> None:
    recount = heard((1, push(1)))
    recount.gated(strike(1))
    recount.gated(strike(1))
    assert not recount.may_be_left_out((0, 1)), "the same result was pushed again"
    recount = heard((1, push(1)))
    for number in (1, 2):
        recount._heard[0, 1] = push(number)
        recount.gated(strike(1))
    assert recount.may_be_left_out((0, 1))
    assert not recount.may_be_left_out((0, 2))


def test_a_run_has_diverged_when_the_last_contributions_are_all_bad() -> None:
    bad = [(1, push(number, number)) for number in range(1, 9)]
    heard((0, push()), *bad).diverged("so")
    with pytest.raises(AssertionError, match="contributions were finite: so"):
        heard(*bad, (0, push())).diverged("so")
    with pytest.raises(AssertionError, match="contributions were finite: so"):
        heard(*bad[1:]).diverged("so")


def test_or_when_all_parts_of_a_mean_are() -> None:
    def part(v: Any) -> Part:
        return Part(v=v, weight=1.0, among=(0, 1), tag="t/0", series=0)

    heard((0, part(NotFinite(4, 1))), (1, part(NotFinite(4, 2)))).diverged("so")
    with pytest.raises(AssertionError, match="contributions were finite: so"):
        heard((0, part(Ghost(4))), (1, part(NotFinite(4, 2)))).diverged("so")


def test_a_mean_has_the_parts_that_came_since_it_was_answered_last() -> None:
    """A worker that begins anew calls its means by the names of earlier ones."""

    def part(v: Any) -> Part:
        return Part(v=v, weight=1.0, among=(0, 1), tag="t/0", series=0)

    class Means(Box):
        meetings: ClassVar[dict[str, Any]] = {}  # all are answered

    sim: Any = SimpleNamespace(bad_results=SimpleNamespace(ever={1}))
    for role, message in ((Means, part(Ghost(4))), (Box, part(NotFinite(4, 1)))):
        recount = BadResultsRecount(sim, AssertionError)
        place = RoleContext(me=0, workers=(0, 1), w=Ghost(4), update=lambda w, g, samples: w)
        party = SimulatedProcess("server 0", role(lambda message: None, place), SimpleNamespace(), 0.0)  # type: ignore
        for src, said in ((0, message), (1, part(NotFinite(4, 2)))):
            list(recount.listening(party)(0.0, src, said))
        recount.diverged("so")
    heard((1, part(Ghost(4))), (1, part(NotFinite(4, 2)))).diverged("so")
