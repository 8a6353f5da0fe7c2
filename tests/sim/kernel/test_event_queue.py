from __future__ import annotations

from heapq import heappop
from random import Random

import pytest

from paceline.sim.kernel.event_queue import MANY, Heap, QueuedEvent


def taken(heap: Heap) -> QueuedEvent:
    """The next event, as the driver takes it out."""
    assert heap.soon or heap.due or heap.reach()
    soon = heap.soon and not (heap.due and heap.due[-1] < heap.soon[0])
    return heappop(heap.soon) if soon else heap.due.pop()


def carry_out(heap: Heap) -> None:
    while heap.soon or heap.due or heap.reach():
        _, _, act, a, b, c = taken(heap)
        act(a, b, c)


def test_events_come_in_the_order_of_their_times_and_then_of_their_making() -> None:
    heap, seen = Heap(), []
    for at, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")):
        heap.push(at, seen.append, name)
    carry_out(heap)
    assert seen == ["a", "b", "c", "d"]


def test_the_times_of_events_can_be_changed_and_events_dropped() -> None:
    heap, seen = Heap(), []
    for at, name in ((1.0, "a"), (2.0, "b"), (3.0, "c"), (4.0, "d")):
        heap.push(at, seen.append, name)
    heap.change(lambda event: {"a": 5.0, "b": None}.get(event[3][0], event[0]))
    carry_out(heap)
    assert seen == ["c", "d", "a"]


@pytest.mark.parametrize("waits_s", [0.0, 1e-7, 0.003, 1.0, 1e5])
@pytest.mark.parametrize("events", [3, 3000])
def test_however_far_apart_events_are_they_come_in_order_and_none_is_lost(events: int, waits_s: float) -> None:
    """Each makes another one, up to twice as far away as the mean or at the same instant, for five rounds."""
    heap, rng, seen = Heap(), Random(1), []
    for _ in range(events):
        heap.push(rng.uniform(0, 2 * waits_s), seen.append)
    for n in range(6 * events):
        event = taken(heap)
        seen.append(event[:2])
        if n < 5 * events:
            heap.push(event[0] + rng.choice((0.0, rng.uniform(0, 2 * waits_s))), seen.append)
    assert not len(heap)
    assert seen == sorted(seen)
    assert sorted(number for _, number in seen) == list(range(1, 6 * events + 1))


@pytest.mark.parametrize("waits_s", [0.003, 1.0, 1e5])
def test_little_is_at_hand_of_much_that_is_to_happen(waits_s: float) -> None:
    """Otherwise what an event costs would grow with the number of workers."""
    heap, rng, at_hand = Heap(), Random(1), []
    for _ in range(4096):
        heap.push(rng.uniform(0, 2 * waits_s), print)
    for _ in range(40_000):
        at = taken(heap)[0]
        heap.push(at + rng.uniform(0, 2 * waits_s), print)
        at_hand.append(len(heap.soon) + len(heap.due))
    assert max(at_hand[-10_000:]) <= 2 * MANY


def test_what_was_taken_out_can_be_put_back() -> None:
    heap, seen = Heap(), []
    for at, name in ((2.0, "b"), (1.0, "a")):
        heap.push(at, seen.append, name)
    heap.put_back(taken(heap))
    carry_out(heap)
    assert seen == ["a", "b"]


def test_an_act_is_carried_out_with_as_many_arguments_as_it_was_given_also_after_a_change() -> None:
    heap, seen = Heap(), []
    for number in range(5):
        heap.push(1.0, lambda *args: seen.append(args), *range(number))
    heap.put(1.0, lambda *args: seen.append(args), "a", "b", "c")
    assert [event[3] for event in sorted(heap, key=lambda event: event[1])] == [
        (),
        (0,),
        (0, 1),
        (0, 1, 2),
        (0, 1, 2, 3),
        ("a", "b", "c"),
    ]
    heap.change(lambda event: event[0] + 1)
    carry_out(heap)
    assert seen == [(), (0,), (0, 1), (0, 1, 2), (0, 1, 2, 3), ("a", "b", "c")]
