import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.adaptive.step_times import Estimates, Ranked, Smoothing


def values(smoothing: str, *samples: float) -> list[float]:
    estimates = Estimates((0,), Smoothing.parse(smoothing))
    seen = []
    for sample in samples:
        estimates.put(0, sample)
        seen.append(estimates[0])
    return seen


def test_the_last_sample_the_moving_average_and_the_median() -> None:
    assert values("last", 1, 9, 1) == [1, 9, 1]
    assert values("ema:0.25", 4, 8, 8) == [4, 5, 5.75]
    assert values("median:3", 1, 9, 1, 1, 9, 9) == [1, 5, 1, 1, 1, 9]


@pytest.mark.parametrize("text", ["mean", "ema:0", "ema:1.5", "median:0", "median:2.5", "ema:x"])
def test_what_smooths_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="."):
        Smoothing.parse(text)


def test_together_they_make_a_step_in_less_time_than_the_fastest() -> None:
    estimates = Estimates((0, 1, 2))
    assert estimates.together() == 0
    for rank, seconds in enumerate((0.5, 0.5, 1.0)):
        estimates.put(rank, seconds)
    assert estimates.together() == pytest.approx(1 / 5)


def test_newcomers_and_those_who_left_are_unknown_and_not_the_largest() -> None:
    estimates = Ranked((0, 1, 2))
    assert estimates.largest() is None
    for rank in (0, 1, 2):
        estimates.put(rank, rank + 1.0)
    assert (estimates.largest(), estimates.unknown) == (2, set())
    estimates.drop(2)
    assert (estimates.largest(), estimates[2]) == (1, 0.0)
    estimates.add(1)
    assert (estimates.largest(), estimates.unknown) == (0, {1})


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0.0, 10.0) | st.none()), max_size=300))
def test_the_largest_is_the_largest(events: list[tuple[int, float | None]]) -> None:
    estimates, plain = Ranked(range(5)), dict[int, float]()
    for rank, sample in events:
        if sample is None:
            estimates.drop(rank)
            plain.pop(rank, None)
        else:
            estimates.put(rank, sample)
            plain[rank] = sample
        expected = min(plain, key=lambda rank: (-plain[rank], rank), default=None)
        assert estimates.largest() == expected


def test_a_rank_half_as_fast_makes_half_the_steps_meanwhile_and_one_at_least() -> None:
    speeds = Ranked(range(4))
    assert speeds.steps_meanwhile(0, 20) == 20, "nobody has been timed"
    for rank, speed in ((0, 10.0), (1, 5.0), (2, 0.01)):
        speeds.put(rank, speed)
    assert [speeds.steps_meanwhile(rank, 20) for rank in range(4)] == [20, 10, 1, 20]
