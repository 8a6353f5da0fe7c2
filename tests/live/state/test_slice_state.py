"""Captured slices: of one capture, or refused."""

from __future__ import annotations

import json

import pytest

from paceline.core.fault_tolerance.replication import SliceState
from paceline.live.state.slice_state import Mixed, check_one_capture, kept, of_capture, publish_state


def test_what_is_published_names_its_vectors_in_order() -> None:
    published = publish_state({"version": 3}, {"v", "m"}, nothing=None)
    assert json.loads(published.facts) == {"version": 3, "vectors": ["m", "v"]}


def test_names_for_a_checkpoint_and_for_a_snapshot_differ() -> None:
    assert kept("", "w") != kept("snapshot", "w")


def test_slices_of_one_capture_go_together() -> None:
    states = [of_capture(SliceState({}, {"version": version}), 4) for version in (7, 8)]
    check_one_capture([state.facts for state in states])
    check_one_capture([state.facts for state in states], 4)
    assert [state.facts["version"] for state in states] == [7, 8]


@pytest.mark.parametrize(("captures", "asked"), [((4, 5), None), ((4, 4), 5), ((4, None), None)])
def test_slices_of_two_captures_or_of_another_are_refused(captures: tuple[int | None, ...], asked: int | None) -> None:
    with pytest.raises(Mixed, match="not all of one"):
        check_one_capture([{} if number is None else {"capture": number} for number in captures], asked)
