import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.engine.vectors.flat import Flat
from paceline.runtime.evaluator.candidate_models import CandidateModels, ModelSnapshot


def at(seconds: float, weights: float | None = None, length: int = 4) -> ModelSnapshot:
    numbers = torch.full((length,), float(seconds if weights is None else weights))
    return ModelSnapshot(at=seconds, samples=0, weights=Flat.wrap(numbers))


@given(st.integers(0, 300), st.integers(2, 20))
def test_it_holds_a_bounded_number_over_the_whole_time_the_newest_included(count: int, most: int) -> None:
    candidates = CandidateModels(count_max=most)
    for moment in range(count):
        candidates.add(at(moment))
    held = [snapshot.at for snapshot in candidates.turn()]
    assert held == sorted(held)
    assert len(held) <= most
    if count:
        assert held[-1] == count - 1
        assert len(held) >= min(count, most // 2)
    assert len(candidates) == 0


def test_it_keeps_to_its_bytes() -> None:
    candidates = CandidateModels(bytes_max=10 * 400)
    for moment in range(1000):
        candidates.add(at(moment, length=100))
        assert len(candidates) <= 10


def test_a_model_that_has_not_moved_is_not_kept_again() -> None:
    candidates = CandidateModels()
    for moment, weights in enumerate([1.0, 1.0, 2.0, 2.0, 1.0]):
        candidates.add(at(moment, weights))
    assert [snapshot.at for snapshot in candidates.turn()] == [0, 2, 4]
