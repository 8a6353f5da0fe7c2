"""Shares of weights and mass: given, kept, handed over and lost."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import KEEP, RESET, Call, Computed, Reply, Tell, Train, Trained
from paceline.core.errors import Diverged, PeerLost
from paceline.core.local.push_sum import QUANTUM, UNSOUND_MAX, Begin, Holder, Returned, whole
from paceline.core.scheme import make
from paceline.core.trace import Decided, Record
from paceline.schemes.gosgd import ReadyForShare
from paceline.sim import LocalSteps, Simulation
from tests.core.local.gossip import hear, share, worker


def test_less_than_a_quantum_is_not_given() -> None:
    role = worker(workers=2)
    role.weight = 3 * QUANTUM
    role.offered = {1}  # type: ignore[attr-defined]
    (told,) = hear(role, 1, ReadyForShare())
    assert (told.message.weight, role.weight) == (QUANTUM, 2 * QUANTUM)
    role.offered = {1}  # type: ignore[attr-defined]
    hear(role, 1, ReadyForShare())
    role.offered = {1}  # type: ignore[attr-defined]
    assert hear(role, 1, ReadyForShare()) == []
    assert role.weight == QUANTUM


def test_messages_wait_until_the_next_step_and_are_averaged_by_weight() -> None:
    role = worker(workers=2, p=0.0)
    for w in (4.0, 1.0):
        role.ready = {1}  # type: ignore[attr-defined]
        hear(role, 1, share(w, 0.25))
    assert role.w == [0.0]
    assert role.model() == ([1.25], 1.0)
    wanted = next(role.run())
    assert isinstance(wanted, Train)
    assert wanted.x == [1.25]
    assert role.weight == 1.0


def test_a_share_that_nobody_has_asked_for_counts_once_its_sender_has_left() -> None:
    """Only a worker that leaves gives unasked: it hands over all it has."""
    role = worker(p=0.0)
    hear(role, 1, share(4.0, 0.5))
    hear(role, 1, share(1.0, 0.5))
    loop = role.run()
    next(loop)
    assert (role.w, role.weight) == ([0.0], whole(1 / 3))
    assert role.model()[1] == whole(1 / 3) + 1.0, "no mass is lost meanwhile"
    assert list(role.on_worker_left(0.0, 1)) == []
    loop.send(Trained(role.w, 1, 1.0))
    assert role.weight == whole(1 / 3) + 1.0
    assert role.w == pytest.approx([2.5 / (4 / 3)])


def test_who_asks_for_mass_gets_some_once_until_it_comes_again() -> None:
    role = worker()
    given, _ = hear(role, 1, Begin())
    half = role.weight
    assert given.message.weight == pytest.approx(half) == pytest.approx(1 / 6)
    assert hear(role, 1, Begin()) == [Reply(1, Begin())]
    assert role.weight == half
    assert list(role.on_worker_left(0.0, 1)) == []
    assert len(hear(role, 1, Begin())) == 2


def test_one_that_leaves_hands_over_all_it_has_and_sends_back_what_still_comes() -> None:
    role = worker()
    hear(role, 1, share(2.0, 1 / 3))
    (last,) = role.leave(0.0)
    assert isinstance(last, Tell)
    assert last.message.w == pytest.approx([1.0])
    assert last.message.weight == pytest.approx(2 / 3)
    assert role.model()[1] == 0
    (back,) = hear(role, 2, share(5.0, 0.1))
    assert (back.to, back.message.weight) == (2, 0.1)
    assert isinstance(back.message, Returned)


def test_an_heir_that_has_left_itself_is_replaced_and_the_last_one_keeps_what_there_is() -> None:
    role = worker()
    (last,) = role.leave(0.0)
    refused = Returned(w=last.message.w, weight=last.message.weight)
    (again,) = hear(role, last.to, refused)
    assert {last.to, again.to} == {1, 2}
    assert hear(role, again.to, refused) == []
    assert role.model()[1] == pytest.approx(1 / 3)


def test_who_kept_its_mass_because_all_had_left_hands_it_to_the_next_that_comes() -> None:
    role = worker()
    for rank in (1, 2):
        assert list(role.on_worker_left(0.0, rank)) == []
    assert list(role.leave(0.0)) == []
    kept = role.model()[1]
    assert kept > 0
    (given,) = role.on_worker_joined(0.0, 2)
    assert (given.to, given.message.weight) == (2, kept)
    assert role.model()[1] == 0
    assert list(role.on_worker_joined(0.0, 1)) == []


def test_when_all_mass_is_lost_the_first_of_those_that_ask_for_some_begins_anew() -> None:
    def poor(me: int) -> tuple[Holder, Any]:
        role = worker(me)
        role.load_join_state({"away": []})
        return role, role.run()

    first, loop = poor(0)
    asked = set()
    for _ in range(100):
        effect = next(loop) if not asked else loop.send(None)
        if isinstance(effect, Train):
            break
        asked.add(effect.to)
        assert first.weight == 0.0
        hear(first, effect.to, share(0.0, 0.0))
    assert asked == {1, 2}, "all others were asked"
    assert first.weight == 1.0
    second, loop = poor(1)
    next(loop)
    for _ in range(50):
        assert isinstance(loop.send(None), Call), "worker 0 will begin, and give it a share"
    assert second.weight == 0.0


def test_who_goes_may_have_left_its_mass_to_somebody_so_all_are_asked_again() -> None:
    role = worker(0)
    role.load_join_state({"away": []})
    role.poor = {1, 2}
    list(role.on_worker_left(0.0, 2))
    assert isinstance(next(role.run()), Call)


# ---- numbers that are not finite ------------------------------------------------------------------------------
GOALS = np.array([[1.0, 0.0, 3.0], [5.0, 2.0, -1.0], [3.0, 1.0, 1.0], [3.0, 1.0, 1.0]])


class Momentum:
    """An update that remembers what it was given, as the optimizers of workers do."""

    v: Any = 0.0

    def __call__(self, w: Any, g: Any, samples: int) -> Any:
        self.v = self.v * 0.5 + g
        return w - self.v * 0.1

    def reset(self) -> None:
        self.v = 0.0


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [
        ("adpsgd", {}),
        ("adpsgd", {"topology": "complete"}),
        ("gosgd", {"p": 0.5}),
        ("noloco", {"h": 4}),
        ("prague", {"size": 2}),
        ("prague", {"size": 0, "h": 3}),
        ("sgp", {}),
        ("sgp", {"tau": 2}),
    ],
)
@pytest.mark.parametrize("memory", [KEEP, RESET])
def test_one_gradient_that_is_not_finite_spoils_no_worker(scheme: str, parameters: dict[str, Any], memory: str) -> None:
    """A NaN is in every gradient after it and in the momentum, until weights and momentum are new."""
    steps, finite = Counter[int](), list[bool]()

    def gradient(rank: int, w: Any) -> Any:
        steps[rank] += 1
        g = w - GOALS[rank] + w.sum() * (np.nan if (rank, steps[rank]) == (1, 9) else 0.0)
        finite.append(bool(np.isfinite(g).all()))
        return g

    work = LocalSteps(lambda rank, rng: 1.0 + rank / 2, gradient, lr=0.1, momentum=0.5)
    own = make(scheme, {**parameters, "memory": memory})
    sim = Simulation(own, np.ones(3), work, workers=4, servers=0, update_factory=lambda length: Momentum())
    sim.run(until=200)
    assert 1 <= finite.count(False) <= 4, "those of the local steps that began with it"
    assert all(finite[-100:])
    for rank in range(4):
        assert np.isfinite(sim.worker(rank).w).all()
    assert sim.model() == pytest.approx(GOALS.mean(axis=0), abs=1.0), "worker 1 counts"


@pytest.mark.parametrize("memory", [KEEP, RESET])
def test_after_weights_that_are_not_finite_the_optimizer_forgets_and_the_model_stays(memory: str) -> None:
    loop = worker(workers=2, p=0.0, memory=memory).run()
    wanted = [next(loop)]
    for x in (1.0, np.nan, 2.0):
        wanted.append(loop.send(Trained(np.array([x]), 1, 1.0)))
    assert [effect.x for effect in wanted] == [[0.0], [1.0], [1.0], [2.0]]
    assert [effect.memory for effect in wanted] == [KEEP, KEEP, RESET, KEEP]


def test_a_gradient_that_is_not_finite_reaches_no_optimizer() -> None:
    role, update = worker(), Momentum()
    role.update = update
    for g in (np.array([1.0]), np.array([np.inf])):
        role.w = role.updated(role.w, Computed(g, 1, 1.0))
    assert (role.w, update.v) == (pytest.approx([-0.1]), [1.0])


def test_a_share_that_is_not_finite_counts_for_the_receivers_own_model_and_no_mass_is_lost() -> None:
    records: list[Record] = []
    role = worker(workers=2, p=0.0)
    role.note, role.w = records.append, np.array([3.0])
    hear(role, 1, dataclasses.replace(share(1.0, 0.25), w=np.array([np.nan])))
    hear(role, 1, share(1.0, 0.25))
    assert role.model() == (pytest.approx([2.5]), 1.0)
    (refused,) = records
    assert isinstance(refused, Decided)
    assert (refused.party, refused.rank, refused.verdict) == ("worker 0", 1, "refused")
    assert refused.reason.startswith("not finite")


def test_a_share_that_is_brought_back_with_nan_counts_for_the_own_model() -> None:
    role = worker(me=1, workers=2, p=0.0)
    hear(role, 0, Returned(w=np.array([np.nan]), weight=0.25))
    assert role.model() == ([0.0], 0.75)


def test_many_results_in_a_row_that_are_not_finite_say_that_the_model_has_diverged() -> None:
    loop = worker(me=1, workers=2, p=0.0).run()
    next(loop)
    for x in [*[np.nan] * (UNSOUND_MAX - 1), 1.0, *[np.nan] * (UNSOUND_MAX - 1)]:
        loop.send(Trained(np.array([x]), 1, 1.0))
    with pytest.raises(Diverged, match=r"the model has diverged, or the machine of worker 1 .*: its last 8 results"):
        loop.send(Trained(np.array([np.nan]), 1, 1.0))


def test_a_newcomer_that_another_one_asks_gives_of_what_it_was_sent_meanwhile() -> None:
    """It waits for an answer itself. Had it nothing, the other one would make a mass of its own."""
    role = worker(workers=3)
    role.load_join_state({"away": []})
    assert isinstance(next(role.run()), Call)
    hear(role, 2, share(3.0, 1.0))
    given, _ = hear(role, 1, Begin())
    assert (given.to, given.message.weight, role.weight) == (1, 0.5, 0.5)
    assert given.message.w == [3.0]


def test_when_one_that_is_asked_is_gone_those_that_had_nothing_are_asked_again() -> None:
    """They may have got something since, and a newcomer that does not ask makes a mass of its own."""
    role = worker(0)
    role.load_join_state({"away": []})
    loop = role.run()
    first = next(loop)
    assert isinstance(first, Call)
    second = loop.send(None)
    while isinstance(second, Call) and second.to == first.to:
        second = loop.send(None)
    again = loop.throw(PeerLost("it is gone"))
    assert isinstance(again, Call)
    assert (again.to, role.weight) == (first.to, 0.0)


def newcomer(me: int = 0) -> tuple[Holder, Any]:
    """Returns a worker without mass that has asked one of two others, which declined."""
    role = worker(me)
    role.load_join_state({"away": []})
    loop = role.run()
    next(loop)
    return role, loop


def test_who_declines_may_have_mass_yet_so_nobody_begins_before_the_coordinator_says_that_it_has_gone() -> None:
    role, loop = newcomer()
    loop.throw(PeerLost("it leaves"))
    waits = loop.throw(PeerLost("it leaves"))
    assert waits == Call(0, Begin())
    assert hear(role, 0, Begin()) == []
    assert list(role.on_worker_left(0.0, 1)) == [Reply(0, Begin())]
    assert loop.send(Begin()) == waits, "worker 2 has not gone"
    assert hear(role, 0, Begin()) == []
    assert list(role.on_worker_left(0.0, 2)) == [Reply(0, Begin())]
    assert isinstance(loop.send(Begin()), Train)
    assert role.weight == 1.0


def test_what_one_that_leaves_hands_over_reaches_who_waits_for_news_of_it() -> None:
    role, loop = newcomer()
    loop.throw(PeerLost("it leaves"))
    loop.throw(PeerLost("it leaves"))
    assert hear(role, 0, Begin()) == []
    assert hear(role, 2, share(3.0, 0.25)) == [Reply(0, Begin())]
    assert isinstance(loop.send(Begin()), Train)
    assert (role.w, role.weight) == ([3.0], 0.25)


def test_news_that_come_just_before_it_waits_are_answered_at_once() -> None:
    role, loop = newcomer()
    loop.throw(PeerLost("it leaves"))
    loop.throw(PeerLost("it leaves"))
    assert list(role.on_worker_left(0.0, 1)) == []
    assert hear(role, 0, Begin()) == [Reply(0, Begin())]


def test_an_answer_from_before_somebody_left_does_not_say_that_there_is_no_mass() -> None:
    """Who has left may have handed its mass to the one that answered, after the answer."""
    role, loop = newcomer()
    role.poor = {1}
    list(role.on_worker_left(0.0, 2))
    assert loop.send(Begin()) == Call(1, Begin())
    assert role.weight == 0.0


def test_a_newcomer_does_not_take_over_who_only_declines() -> None:
    role, loop = newcomer(me=2)
    loop.throw(PeerLost("it leaves"))
    assert len(role.away) == 1
    assert role.join_state()["away"] == []
    list(role.on_worker_left(0.0, next(iter(role.away))))
    assert len(role.join_state()["away"]) == 1


def test_of_two_that_begin_the_higher_one_waits_until_the_lower_one_has_a_mass() -> None:
    """It would ask again and again: a lower one that is slow to begin may take minutes."""
    role, loop = newcomer()
    assert hear(role, 2, Begin()) == []
    asked = {loop.send(Begin()).to}
    while isinstance(effect := loop.send(Begin()), Call):
        asked.add(effect.to)
    assert isinstance(effect, Tell), "all others have said that they have none, so it begins, and gives"
    assert (effect.to, effect.message.weight, role.weight) == (2, 0.5, 0.5)
    assert next(loop) == Reply(2, Begin())
    assert isinstance(next(loop), Train)


def test_one_that_begins_answers_a_lower_one_at_once() -> None:
    role, _ = newcomer(me=2)
    assert hear(role, 0, Begin()) == [Reply(0, Begin())]


@pytest.mark.parametrize("event", ["it left", "it came again", "no further step", "this one leaves"])
def test_who_waits_for_a_mass_is_forgotten_or_answered(event: str) -> None:
    role, _ = newcomer()
    hear(role, 2, Begin())
    match event:
        case "it left":
            assert list(role.on_worker_left(0.0, 2)) == []
        case "it came again":
            list(role.on_worker_left(0.0, 2))
            assert list(role.on_worker_joined(0.0, 2)) == []
        case "no further step":
            assert list(role.finish(0.0)) == [Reply(2, Begin())]
        case "this one leaves":  # its calls are declined
            assert not [effect for effect in role.leave(0.0) if isinstance(effect, Reply)]
    assert role.unanswered == []


def test_one_that_leaves_while_it_waits_answers_itself_no_more() -> None:
    role, loop = newcomer()
    loop.throw(PeerLost("it leaves"))
    loop.throw(PeerLost("it leaves"))
    hear(role, 0, Begin())
    list(role.leave(0.0))
    assert list(role.on_worker_left(0.0, 1)) == []
