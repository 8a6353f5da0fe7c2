"""One queue of samples for all workers: each place is trained once, whoever is fast, slow or lost."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.samples.sample_queue import SampleQueue


def places(piece: tuple[int, int] | None) -> range:
    return range(*piece) if piece else range(0)


@pytest.mark.parametrize("seed", range(40))
def test_every_place_is_trained_once_whoever_is_lost_or_leaves(seed: int) -> None:
    dice = random.Random(seed)
    n, epochs, workers, batch = dice.randint(1, 90), dice.randint(1, 4), dice.randint(1, 5), dice.randint(1, 12)
    queue = SampleQueue(n)
    trained: Counter[int] = Counter()
    held: dict[int, list[int]] = {rank: [] for rank in range(workers)}
    done = dict.fromkeys(held, 0)
    while True:
        rank = dice.randrange(workers)
        if dice.random() < 0.05:  # it is lost, after it has told what it trained, and comes back
            queue.trained(rank, done[rank])
            queue.gone(rank)
            held[rank], done[rank] = [], 0
            continue
        queue.trained(rank, done[rank])
        wanted = batch * dice.randint(1, 6)
        held[rank] += places(queue.take(rank, wanted, batch, epochs=epochs, workers=workers))
        now, held[rank] = held[rank][:batch], held[rank][batch:]
        trained.update(now)
        done[rank] += len(now)
        if not now and not any(held.values()):
            break
    assert trained == Counter(range(n * epochs))


@given(st.integers(2, 60), st.integers(1, 3), st.lists(st.integers(2, 9), min_size=1, max_size=5))
def test_several_workers_are_left_no_single_place_whatever_their_batches(
    n: int, epochs: int, batches: list[int]
) -> None:
    queue = SampleQueue(n)
    pieces = []
    for batch in itertools.cycle(batches):
        piece = queue.take(0, batch, batch, epochs=epochs, workers=2)
        if piece is None:
            break
        pieces.append(piece)
    assert [place for piece in pieces for place in range(*piece)] == [*range(n * epochs)]
    assert min(stop - start for start, stop in pieces) > 1


def test_pieces_are_whole_batches_that_end_with_an_epoch_and_get_shorter_towards_the_end() -> None:
    queue = SampleQueue(100)
    pieces = []
    while piece := queue.take(0, 64, 8, epochs=2, workers=2):
        pieces.append(piece)
    assert all((start % 100) % 8 == 0 for start, _ in pieces)
    assert all(start // 100 == (stop - 1) // 100 for start, stop in pieces)
    lengths = [stop - start for start, stop in pieces]
    assert max(lengths) == 48  # half of what is left, for two workers half of that
    assert lengths[-3:] == [8, 8, 4]


def test_a_loop_gets_samples_of_its_epochs_only_and_later_ones_when_it_goes_on() -> None:
    queue = SampleQueue(10)
    assert [queue.take(rank, 10, 5, epochs=1, workers=2) for rank in (0, 1, 0, 1)] == [(0, 5), (5, 10), None, None]
    assert queue.take(0, 10, 5, epochs=2, workers=2) == (10, 15)
    assert queue.take(1, 10, 5, epochs=1, workers=2) is None


def test_what_a_lost_worker_had_not_trained_goes_to_others_first() -> None:
    queue = SampleQueue(100)
    assert queue.take(0, 20, 10, epochs=0, workers=2) == (0, 20)
    assert queue.take(1, 20, 10, epochs=0, workers=2) == (20, 40)
    queue.trained(0, 5)
    queue.gone(0)
    assert [queue.take(1, 10, 10, epochs=0, workers=1) for _ in range(3)] == [(5, 15), (15, 20), (40, 50)]


def test_a_rule_bounds_what_is_given_out() -> None:
    queue = SampleQueue(10, total=14)
    given = []
    while piece := queue.take(0, 10, 5, epochs=0, workers=1):
        given.append(piece)
    assert given == [(0, 5), (5, 10), (10, 14)]
    assert queue.over


def test_a_data_set_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        SampleQueue(0)


@pytest.mark.parametrize("seed", range(40))
def test_a_resumed_queue_gives_out_just_what_is_not_in_the_model(seed: int) -> None:
    """Each worker's updates are in the model in the order of its batches, but those of one are older than another's."""
    dice = random.Random(seed)
    n, epochs, workers, batch = dice.randint(1, 90), dice.randint(1, 4), dice.randint(1, 5), dice.randint(1, 12)
    queue, given = SampleQueue(n), dict[int, list[int]]()
    for _ in range(dice.randint(0, 30)):
        rank = dice.randrange(workers)
        given.setdefault(rank, []).extend(places(queue.take(rank, batch, batch, epochs=epochs, workers=workers)))
        if dice.random() < 0.1:
            queue.gone(dice.randrange(workers))
    in_model = {place for of in given.values() for place in of[: dice.randint(0, len(of))]}
    done = [(place // n, place % n, place % n + 1) for place in in_model]
    resumed, found = SampleQueue(n, begun_at=len(in_model), done=done), list[int]()
    while piece := resumed.take(0, batch, batch, epochs=epochs, workers=workers):
        assert piece[0] // n == (piece[1] - 1) // n, "it is of one epoch"
        found += places(piece)
    assert sorted(found) == sorted(set(range(n * epochs)) - in_model)
    assert found == sorted(found), "the earliest go first"


def test_samples_that_were_trained_without_an_account_count_as_the_first_places() -> None:
    def begins(begun_at: int, *done: tuple[int, int, int]) -> list[tuple[int, int] | None]:
        queue = SampleQueue(10, begun_at=begun_at, done=done)
        return [queue.take(0, 10, 1, epochs=3, workers=1) for _ in range(3)]

    assert begins(14)[0] == (14, 20)
    assert begins(14, (1, 4, 8))[:2] == [(10, 14), (18, 20)], "the 10 others are the first"
    assert begins(14, (0, 0, 10))[0] == (14, 20), "the 4 others are those after"
    assert begins(9, (0, 3, 5), (1, 0, 4)) == [(5, 10), (14, 20), (20, 25)]
    assert begins(14, (0, 0, 12))[0] == (14, 20), "pieces of a longer data set say nothing of this one"
