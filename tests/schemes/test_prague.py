"""Prague: groups of workers average, as a generator assigns them; nobody outside a group waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.core.effects import COORDINATOR, Call, Reply, Start, Tell, Train, Trained, Wait
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.local.answered_rounds import RoundSent
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.trace import Decided, Record
from paceline.schemes.prague import AssignedGroup, GroupDone, GroupRequest, ReducePart
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.core.local.gossip import assert_that_kills_change_nothing_of_the_mean

GOALS = np.array([[1.0, 0.0], [5.0, 2.0], [-2.0, 4.0], [0.0, 3.0]])


def worker(me: int = 0, **parameters: Any) -> Any:
    scheme = make("prague", parameters)
    context = RoleContext(me=me, workers=(0, 1, 2, 3), w=np.zeros(2), update=lambda w, g, samples: w)
    return scheme.Worker(scheme, context)


def generator(workers: int = 6, note: Any = None, **parameters: Any) -> Any:
    scheme = make("prague", parameters)
    context = RoleContext(
        me=0, workers=tuple(range(workers)), w=None, update=lambda w, g, samples: w, seed=3, note=note
    )
    assert scheme.Coordinator is not None
    return scheme.Coordinator(scheme, context)


def ask(role: Any, rank: int, done: int = -1) -> AssignedGroup:
    (reply,) = role.on(0.0, rank, GroupRequest(done=done))
    assert reply.to == rank
    assert isinstance(reply.message, AssignedGroup)
    return reply.message


def finish(role: Any, group: AssignedGroup) -> None:
    for rank in group.members:
        list(role.on(0.0, rank, GroupDone(done=group.number)))


# ---- the group generator -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("workers", "size", "sizes"),
    [(6, 3, [3, 3]), (6, 2, [2, 2, 2]), (7, 3, [2, 2, 3]), (4, 3, [2, 2]), (3, 2, [1, 2]), (2, 3, [2])],
)
def test_a_division_puts_every_idle_worker_into_one_group(workers: int, size: int, sizes: list[int]) -> None:
    role = generator(workers, size=size)
    groups = {group.number: group.members for group in (ask(role, rank) for rank in range(workers))}
    assert sorted(rank for members in groups.values() for rank in members) == list(range(workers))
    assert sorted(map(len, groups.values())) == sizes


def test_whoever_is_in_a_group_already_is_in_no_division() -> None:
    role = generator(6, size=3)
    first = ask(role, 0)
    other = next(rank for rank in range(6) if rank not in first.members)
    finish(role, first)  # the three of it are idle, and the other three are not
    second = ask(role, 0, first.number)
    assert second.members == first.members
    assert ask(role, other).members == tuple(rank for rank in range(6) if rank not in first.members)


def test_who_asks_again_after_a_restart_is_told_the_same_group() -> None:
    role = generator()
    assert ask(role, 0) == ask(role, 0)
    assert role.c[0] == 1, "one request"


def test_the_filter_keeps_out_who_is_too_many_requests_behind_and_lets_them_ask() -> None:
    records: list[Record] = []
    role = generator(3, note=records.append, size=3, c_thres=2)
    role.c = {0: 5, 1: 4, 2: 3}
    assert ask(role, 0).members == (0, 1), "5 - 3 is not below 2"
    assert [(r.rank, r.verdict, r.reason) for r in records if isinstance(r, Decided)] == [
        (2, "left out", "it has made 3 requests, worker 0 5; C_thres is 2")
    ]
    role.take_out(0, 9)
    role.take_out(1, 9)
    assert ask(role, 2).members == (0, 1, 2)


def test_random_groups_are_of_any_workers_and_wait_in_their_buffers_in_order() -> None:
    role = generator(4, size=4, groups="random")
    first = ask(role, 0)
    assert first.members == (0, 1, 2, 3)
    assert ask(role, 1) == first, "the first of its buffer"
    finish(role, first)
    role = generator(4, size=2, groups="random")
    made = [ask(role, rank) for rank in range(4)]
    assert all(rank in group.members for rank, group in enumerate(made))


def test_who_leaves_is_in_no_group_any_more_and_who_comes_counts_as_the_furthest() -> None:
    role = generator(3, size=3)
    ask(role, 0)
    list(role.on_worker_left(0.0, 2))
    assert ask(role, 1).members == (0, 1)
    assert list(role.on(0.0, 2, GroupRequest(done=-1))) == [], "its last message"
    role.c = {0: 7, 1: 3, 2: 0}
    list(role.on_worker_joined(0.0, 2))
    assert role.c[2] == 7
    assert ask(role, 2).members == (2,), "the others are in a group"


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="prague.size = 1: a group has two workers or more, and 0 means all: take 2"):
        make("prague", {"size": 1})


# ---- a worker ----------------------------------------------------------------------------------------------------
def trained(role: Any, x: list[float], group: AssignedGroup) -> tuple[Any, list[Tell], list[Any]]:
    """Its loop up to the wait for others: what it told whom, and whom it asks."""
    loop = role.run()
    assert isinstance(next(loop), Train)
    request = loop.send(Trained(np.array(x), 4, 1.0))
    assert request == Call(COORDINATOR, GroupRequest(done=role.last))
    effect, told, asked = loop.send(group), [], []
    while not isinstance(effect, Wait | Train) and not (isinstance(effect, Tell) and effect.to == COORDINATOR):
        if isinstance(effect, Tell):
            told.append(effect)
        if isinstance(effect, Start) and isinstance(effect.effect, Call):
            asked.append(effect.effect.to)
        effect = loop.send(None)
    return loop, told, asked


def part(x: float = 1.0, round: int = 0, counts: float = 1.0) -> ReducePart:
    return ReducePart(x=np.full(2, x), counts=counts, round=round)


def test_it_sends_its_model_to_the_others_and_takes_the_mean_of_all() -> None:
    role = worker()
    list(role.on(0.0, 2, part(4.0)))
    loop, told, asked = trained(role, [1.0, 1.0], AssignedGroup(number=0, members=(0, 1, 2)))
    assert [tell.to for tell in told] == asked == [1, 2]
    list(role.on(0.0, 1, part(7.0)))
    loop.send(None)
    assert loop.send(None) == Tell(COORDINATOR, GroupDone(done=0))
    assert role.w.tolist() == [4.0, 4.0]
    assert isinstance(loop.send(None), Train)


@pytest.mark.parametrize("bad", [part(np.nan), part(np.inf), part(9.0, counts=0.0), part(9.0, round=5)])
def test_a_part_that_is_of_no_use_or_of_another_group_is_left_out(bad: ReducePart) -> None:
    role = worker()
    list(role.on(0.0, 1, bad))
    loop, _, _ = trained(role, [1.0, 2.0], AssignedGroup(number=0, members=(0, 1)))
    loop.send(None)
    assert role.w.tolist() == [1.0, 2.0]


def test_a_part_of_who_is_no_member_is_left_out() -> None:
    role = worker()
    list(role.on(0.0, 3, part(9.0)))
    loop, _, _ = trained(role, [1.0, 2.0], AssignedGroup(number=0, members=(0, 1)))
    loop.send(None)
    assert role.w.tolist() == [1.0, 2.0]


def test_a_model_that_is_not_finite_stands_still() -> None:
    role = worker()
    list(role.on(0.0, 1, part(4.0)))
    loop, told, _ = trained(role, [np.nan, 1.0], AssignedGroup(number=0, members=(0, 1)))
    assert told[0].message.x.tolist() == [0.0, 0.0]
    loop.send(None)
    assert role.w.tolist() == [2.0, 2.0]


def test_a_member_that_is_lost_is_not_waited_for() -> None:
    role = worker()
    loop, _, _ = trained(role, [1.0, 2.0], AssignedGroup(number=0, members=(0, 1)))
    assert loop.throw(PeerLost("gone")) == Tell(COORDINATOR, GroupDone(done=0))
    assert role.w.tolist() == [1.0, 2.0]


def test_after_a_restart_it_sends_the_very_same_part() -> None:
    role, group = worker(), AssignedGroup(number=0, members=(0, 1))
    _, told, _ = trained(role, [1.0, 2.0], group)
    again = role.run()
    assert next(again) == Call(COORDINATOR, GroupRequest(done=-1)), "no steps anew"
    assert again.send(group).message is told[0].message


def test_whoever_asks_for_a_part_is_answered_when_it_is_sent_or_never_will_be() -> None:
    role = worker()
    assert list(role.on(0.0, 1, RoundSent(round=4))) == []
    assert list(role.on(0.0, 2, RoundSent(round=5))) == []
    loop = role.run()
    next(loop)
    loop.send(Trained(np.ones(2), 4, 1.0))
    reply = loop.send(AssignedGroup(number=5, members=(0, 2)))
    assert reply == Reply(1, RoundSent(round=4)), "groups come in order: it is not in group 4"
    assert isinstance(loop.send(None), Tell)
    assert loop.send(None) == Reply(2, RoundSent(round=5))


def test_what_a_sender_leaves_here_is_bounded() -> None:
    role = worker()
    for number in range(50):
        list(role.on(0.0, 1, part(round=number)))
    assert sorted(role.parts[1]) == [48, 49]


# ---- whole runs --------------------------------------------------------------------------------------------------
def simulation(scheme: str, *, uneven: bool = False, servers: int = 0, **parameters: Any) -> Simulation:
    work = LocalSteps(
        lambda rank, rng: rng.uniform(0.5, 1.5) if uneven else 1.0, lambda rank, w: w - GOALS[rank], lr=0.1
    )
    return Simulation(
        make(scheme, parameters), np.zeros(2), work, workers=4, servers=servers, update_factory=plain_sgd(0.1)
    )


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("groups", ["division", "random"])
def test_with_groups_of_all_workers_it_is_bsp(uneven: bool, groups: str) -> None:
    """On an all-reduce, with equal batches and plain gradients: the mean of the steps is the step of the mean."""
    seen: dict[str, list[Any]] = {"prague": [], "bsp": []}

    def after_nine(sim: Simulation) -> bool:
        """The model each time all have made as many steps."""
        name = sim.scheme.name
        rank = sim.worker(0)
        if not seen[name] or not np.array_equal(seen[name][-1], rank.w):
            seen[name].append(rank.w.copy())
        return len(seen[name]) == 9

    simulation("prague", uneven=uneven, size=0, groups=groups).run(stop=after_nine)
    simulation("bsp", uneven=uneven).run(stop=after_nine)
    np.testing.assert_allclose(seen["prague"], seen["bsp"], rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_kills_change_nothing_of_the_mean(seed: int) -> None:
    assert_that_kills_change_nothing_of_the_mean("prague", seed, size=2)
