"""A worker finds out whether overlap makes its steps shorter, and is not led astray by a cold start or a stall."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from paceline.runtime.worker.steps.overlap_trial import BLOCK, PAIRS, TRIED_MAX, WARM_UP, OverlapTrial, TrialResult

STEPS_MAX = WARM_UP + TRIED_MAX
"""Of a whole trial in which a step takes about 0.3 s, so that WARM_UP of them last WARM_UP_S."""
Seconds = Callable[[int, bool], float]


def tried(seconds: Seconds) -> tuple[TrialResult, list[bool]]:
    """The result of a trial whose step `i` takes `seconds(i, overlaps)`, and which of its steps overlapped."""
    trial, ways = OverlapTrial(), list[bool]()
    for i in itertools.count():
        assert i < STEPS_MAX
        ways.append(trial.overlaps)
        trial.stepped(seconds(i, ways[-1]))
        if trial.result is not None:
            return trial.result, ways
    raise AssertionError


def times(ratio: float, base: float = 0.3) -> Seconds:
    """Steps that take `base` seconds, and `ratio` times that with overlap."""
    return lambda _i, overlaps: base * ratio if overlaps else base


@pytest.mark.parametrize("ratio", [0.5, 0.8, 0.96])
def test_overlap_stays_where_steps_are_shorter_with_it(ratio: float) -> None:
    result, ways = tried(times(ratio))
    assert result.overlaps
    assert (result.with_s, result.without_s) == (pytest.approx(0.3 * ratio), pytest.approx(0.3))
    assert len(ways) == STEPS_MAX
    assert ways.count(True) == BLOCK * PAIRS


@pytest.mark.parametrize("ratio", [0.98, 1.0, 1.01, 1.26, 5.0])
def test_overlap_stays_out_where_it_saves_next_to_nothing_or_costs(ratio: float) -> None:
    assert not tried(times(ratio))[0].overlaps


def test_what_cannot_win_any_more_is_given_up_after_two_pairs() -> None:
    result, ways = tried(times(1.2))
    assert len(ways) == WARM_UP + 2 * 2 * BLOCK
    assert result.pairs == 2
    assert ways.count(True) == 2 * BLOCK


def test_no_way_is_always_the_first_of_a_pair() -> None:
    _, ways = tried(times(0.5))
    assert not any(ways[:WARM_UP])
    blocks = [set(ways[at : at + BLOCK]) for at in range(WARM_UP, STEPS_MAX, BLOCK)]
    assert blocks == ([{False}, {True}, {True}, {False}] * PAIRS)[: 2 * PAIRS]


# ---- odd conditions --------------------------------------------------------------------------------------
@pytest.mark.parametrize("ratio", [0.8, 1.05])
def test_cold_first_steps_decide_nothing(ratio: float) -> None:
    plain = times(ratio)
    assert tried(lambda i, on: 3.0 if i < WARM_UP else plain(i, on))[0].overlaps is (ratio < 1)


@pytest.mark.parametrize("ratio", [0.8, 1.05])
@pytest.mark.parametrize("at", range(WARM_UP, STEPS_MAX))
def test_one_step_that_stalls_decides_nothing_wherever_it_is(ratio: float, at: int) -> None:
    plain = times(ratio)
    assert tried(lambda i, on: plain(i, on) + 2.0 * (i == at))[0].overlaps is (ratio < 1)


@pytest.mark.parametrize("ratio", [0.8, 1.05])
@pytest.mark.parametrize("begins", range(WARM_UP, STEPS_MAX, BLOCK))
def test_a_stall_of_a_whole_block_decides_nothing(ratio: float, begins: int) -> None:
    plain = times(ratio)
    result, _ = tried(lambda i, on: plain(i, on) + 2.0 * (begins <= i < begins + BLOCK))
    assert result.overlaps is (ratio < 1)


@pytest.mark.parametrize("ratio", [0.9, 1.03])
def test_short_and_long_steps_in_turn_count_with_their_mean(ratio: float) -> None:
    """As exchanges make them that overlap; the median would be that of the short ones in every second block."""

    def alternating(i: int, on: bool) -> float:
        return (0.2 + 0.1 * (i % 2)) * ratio if on else 0.25

    assert tried(alternating)[0].overlaps is (ratio < 1)


def test_a_second_of_steps_comes_before_the_trial_however_short_they_are() -> None:
    trial = OverlapTrial()
    for _ in range(999):
        assert not trial.overlaps
        trial.stepped(0.001)
    assert tried_after(trial) <= TRIED_MAX + 2  # of float arithmetic


def tried_after(trial: OverlapTrial) -> int:
    """How many steps the trial takes from now on."""
    for i in range(2 * TRIED_MAX):
        if trial.result is not None:
            return i
        trial.stepped(0.001 if trial.overlaps else 0.002)
    raise AssertionError


@pytest.mark.parametrize("drift", [-0.009, 0.009])
def test_a_machine_that_becomes_faster_or_slower_favours_neither(drift: float) -> None:
    def drifting(i: int, _on: bool) -> float:
        return 0.75 + drift * (i - 30)

    assert not tried(drifting)[0].overlaps


def test_the_first_step_of_a_block_is_not_counted_as_it_is_half_of_the_other_way() -> None:
    """Would it be, the blocks without overlap would take the blame for what those with it left behind."""
    left = [False]

    def spilling(_i: int, on: bool) -> float:
        spilt, left[0] = (0.0 if on else 9.0 * left[0]), on
        return 0.25 + spilt

    result, _ = tried(spilling)
    assert not result.overlaps
    assert result.without_s == pytest.approx(0.25)


@pytest.mark.parametrize(("ratio", "most"), [(1.05, 0.02), (1.02, 0.06)])
def test_noise_seldom_lets_a_slower_way_win(ratio: float, most: float) -> None:
    """Steps that vary by a tenth; seeded, so the same on every machine."""
    draw, plain = random.Random(3), times(ratio)
    wins = sum(tried(lambda i, on: plain(i, on) * draw.gauss(1.0, 0.1))[0].overlaps for _ in range(1000))
    assert wins / 1000 <= most


def test_noise_of_a_tenth_hides_a_gain_of_a_fifth_seldom() -> None:
    draw, plain = random.Random(4), times(0.8)
    wins = sum(tried(lambda i, on: plain(i, on) * draw.gauss(1.0, 0.1))[0].overlaps for _ in range(1000))
    assert wins / 1000 >= 0.97


def test_steps_of_no_length_are_no_error() -> None:
    assert not tried(lambda i, _on: 1.0 if i < WARM_UP else 0.0)[0].overlaps


def test_the_same_seconds_lead_to_the_same_decision() -> None:
    def steps() -> Seconds:
        draw = random.Random(5)
        return lambda _i, on: draw.uniform(0.2, 0.3) * (0.9 if on else 1.0)

    assert tried(steps()) == tried(steps())


def test_what_comes_after_the_result_changes_nothing() -> None:
    trial = OverlapTrial()
    for _ in range(STEPS_MAX):
        trial.stepped(0.2 if trial.overlaps else 0.3)
    found = trial.result
    assert found is not None
    for _ in range(STEPS_MAX):
        assert trial.overlaps
        trial.stepped(9.0)
    assert trial.result == found


def test_the_reason_has_both_times() -> None:
    reason = TrialResult(overlaps=True, with_s=0.0482, without_s=0.0551, pairs=5).reason
    assert reason == "a step takes 48.2 ms with overlap, 55.1 without (5 pairs of 5 steps each way)"
