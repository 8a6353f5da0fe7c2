"""Contributions that are lost, applied twice or misjudged are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paceline.core.adaptive.regrouping import Move
from paceline.core.effects import Reply, Tell
from paceline.core.paramserver.gated_server import ClockedServer, Pull, Push
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.robust_mean import KeptRound, RobustPolicy
from paceline.core.scheme import make
from paceline.core.trace import Applied
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.checking.oracles.contributions import ShardRecount
from paceline.sim.checking.oracles.promises import promises_of
from paceline.sim.messaging import Messaging
from tests.sim.checking.watched import run
from tests.sim.made_up import scheme_of
from tests.sim.robust_numbers import Numbers


def test_a_worker_that_is_let_go_too_far_ahead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = make("ssp", {"staleness": 2})
    run(scheme)
    monkeypatch.setattr(scheme.Server, "may_go", lambda self, rank: self.clocks[rank] - self.clocks.low <= 3)
    with pytest.raises(InvariantBroken, match="worker 0 may go 3 clocks ahead of the slowest, bound 2"):
        run(scheme)


def test_a_contribution_that_is_applied_twice_is_found() -> None:
    class Twice(ClockedServer):
        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            yield from super().on(now, src, message)
            if hasattr(message, "clock") and message.clock == 5 and src == 1:
                self._apply(now, (src,), message.g, message.samples)

    with pytest.raises(InvariantBroken, match="shard 0 applied 6 contributions of worker 1, which has made 5"):
        run(scheme_of(ClockedWorker, Twice))


def test_a_robust_round_counts_as_many_samples_as_its_claims_without_the_outer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 8, 7, 7 and 7 that is 28, and neither 27 nor 33."""
    rounds = RobustPolicy(rule="median").rounds(Numbers())

    def robust() -> Simulation:
        work = LocalSteps(lambda rank, rng: 1.0, samples=(8, 7, 7, 7).__getitem__)
        sim = Simulation(make("bsp", {}), np.zeros(4), work, workers=4, servers=2, rounds=rounds)
        return sim.run(until=20.0)

    assert robust().world.servers[0].role.samples_seen % 28 == 0
    for wrong in (27, 33):
        monkeypatch.setattr(KeptRound, "counted_samples", lambda self, wrong=wrong: wrong)
        with pytest.raises(InvariantBroken, match=f"counts {wrong} samples; its contributions have 29"):
            robust()


def test_a_push_that_reaches_some_shards_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    split = Messaging._split

    def half(self: Messaging, message: Any, parties: Any) -> list[Any]:
        parts = split(self, message, parties)
        return [parts[0], Pull()] if isinstance(message, Push) and message.clock == 7 else parts

    run(make("asp", {}), servers=2)
    monkeypatch.setattr(Messaging, "_split", half)
    simulation = run(make("asp", {}), servers=2, until=20.0)
    assert simulation.invariants is not None
    assert [simulation.invariants.torn(rank) for rank in range(3)] == [1, 1, 0], "worker 2 makes six steps in that time"
    with pytest.raises(
        InvariantBroken, match="some shards have heard 1 contributions more than others; incarnations lost: 0"
    ):
        simulation.invariants.all_is_accounted_for()


def test_samples_that_are_counted_twice_are_found() -> None:
    class Generous(ClockedServer):
        def _note_update(self, now: float, ranks: Any, staleness: int, weight: float, samples: int) -> None:
            super()._note_update(now, ranks, staleness, weight, samples + 1)

    with pytest.raises(InvariantBroken, match="shard 0 applied 2 samples; 1 have arrived"):
        run(scheme_of(ClockedWorker, Generous))


def test_a_staleness_that_is_not_what_it_was_is_found() -> None:
    class Flattering(ClockedServer):
        def _note_update(self, now: float, ranks: Any, staleness: int, weight: float, samples: int) -> None:
            super()._note_update(now, ranks, max(0, staleness - 1), weight, samples)

    with pytest.raises(InvariantBroken, match="calls a contribution of worker 1 0 versions late; it is 1"):
        run(scheme_of(ClockedWorker, Flattering))


@pytest.mark.parametrize("scheme", ["bsp", "lbbsp", "ksync"])
def test_an_update_of_too_few_is_found(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(scheme, {"k": 3} if scheme == "ksync" else {})
    run(made)
    monkeypatch.setattr(made.Server, "enough", lambda self, group: group.count >= 2)
    with pytest.raises(InvariantBroken, match=r"an update (of 2 contributions; 3 were to make one|without worker 2)"):
        run(made)


def recount_of_two_groups() -> ShardRecount:
    """Returns the recount of a shard: worker 0 was lost with 9 samples in the round of 0 and 1, and joined another."""
    shard = ShardRecount(AssertionError, promises_of(make("gsp", {})), workers=2, number=0)
    shard.hear(0, Push(g=Ghost(1), clock=1, samples=9))
    shard.gone(0)
    shard.came(0)
    shard.hear(0, Move(g=Ghost(1), clock=1, samples=8, group=(0,), number=1))
    return shard


def update(ranks: tuple[int, ...], version: int, staleness: int, samples: int) -> Applied:
    return Applied(at=0.0, shard=0, ranks=ranks, version=version, staleness=staleness, weight=1.0, samples=samples)


def recount() -> ShardRecount:
    """Worker 0 has pushed to the open round, was lost, and is back; worker 1 has not pushed."""
    counted = ShardRecount(AssertionError, promises_of(make("bsp", {})), 2, 0)
    counted.hear(0, Push(g=Ghost(1), clock=1, samples=1))
    counted.gone(0)
    counted.came(0)
    return counted


def test_the_clocks_that_a_server_keeps_are_those_that_its_workers_have_reached() -> None:
    recount().keeps({"clocks": [[0, 0], [1, 0]]})
    with pytest.raises(AssertionError, match="shard 0 keeps clock -1 of worker 0; it is 0"):
        recount().keeps({"clocks": [[0, -1], [1, 0]]})


def test_a_copy_from_before_all_went_back_is_of_no_use() -> None:
    before = recount().as_kept()
    back = before.again(3, copied=False)
    back.goes_on_as(back.as_kept().again(4, copied=True))
    with pytest.raises(AssertionError, match="a copy of view 0 is used for a lost server that had gone back since"):
        back.goes_on_as(before.again(4, copied=True))


def test_servers_that_went_back_count_by_the_clocks_of_the_workers() -> None:
    """A newcomer's clock on a shard may be ahead of its own; after a rollback all shards begin with its own."""
    shard = ShardRecount(AssertionError, promises_of(make("ssp", {})), 2, 0)
    shard.hear(0, Push(g=Ghost(1), clock=1, samples=1))
    shard.applied(update((0,), 1, 0, 1))
    shard.gone(1)
    shard.came(1)
    shard.hear(1, Push(g=Ghost(1), clock=1, samples=1))
    shard.applied(update((1,), 2, 0, 1))
    shard.keeps({"clocks": [[0, 1], [1, 2]]})
    kept = shard.as_kept()
    kept.again(3, copied=True).keeps({"clocks": [[0, 1], [1, 2]]})
    back = kept.again(3, copied=False)
    back.keeps({"clocks": [[0, 1], [1, 1]]})
    back.as_kept().again(4, copied=False).keeps({"clocks": [[0, 1], [1, 1]]})
    with pytest.raises(AssertionError, match="shard 0 keeps clock 2 of worker 1; it is 1"):
        back.keeps({"clocks": [[0, 1], [1, 2]]})
    back.hear(1, Pull(last=2))
    back.keeps({"clocks": [[0, 1], [1, 2]]})


def test_a_worker_that_came_back_may_be_in_the_open_rounds_of_two_groups() -> None:
    shard = recount_of_two_groups()
    shard.applied(update((0,), 1, 0, 8))
    assert [contribution.samples for contribution in shard.open[0]] == [9]
    shard.hear(1, Push(g=Ghost(1), clock=1, samples=4))
    shard.applied(update((0, 1), 2, 1, 13))
    shard.all_is_accounted_for(0, waiting=0)


@pytest.mark.parametrize(("samples", "says"), [(7, "counts 7 samples"), (17, "counts 17 samples"), (16, "counts 16")])
def test_an_update_is_made_of_one_of_these_rounds_whole(samples: int, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        recount_of_two_groups().applied(update((0,), 1, 0, samples))


def test_what_lies_in_one_of_them_counts_once() -> None:
    shard = recount_of_two_groups()
    shard.applied(update((0,), 1, 0, 8))
    with pytest.raises(AssertionError, match="counts 8 samples; its contributions have 9"):
        shard.applied(update((0,), 2, 1, 8))
