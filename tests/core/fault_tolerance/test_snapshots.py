"""When a snapshot is taken, what belongs to it, and which one is kept."""

from __future__ import annotations

from paceline.core.fault_tolerance.snapshots import (
    AHEAD,
    FORGET,
    HELD_SECONDS,
    AskVersions,
    SnapshotPause,
    SnapshotRounds,
    WantedCapture,
)


def rounds(every_s: float = 30.0) -> SnapshotRounds[str]:
    return SnapshotRounds(every_s)


def taken(of: SnapshotRounds[str], version: int, *states: str) -> None:
    number = of.begin(range(len(states)), version).number
    for at, state in enumerate(states):
        of.arrived(number, at, state)


def test_the_first_one_is_of_now_and_later_ones_are_of_a_version_that_nobody_has_passed() -> None:
    of = rounds()
    assert of.begin([0, 1], 7) == (7, 1)
    assert of.begin([0, 1], 8) == (8, 2), "there is none yet"
    taken(of, 9, "a", "b")
    assert of.begin([0, 1], 9).version == 9 + AHEAD


def test_it_counts_when_all_slices_are_there_and_no_sooner() -> None:
    of = rounds()
    number = of.begin([0, 1], 0).number
    assert not of.arrived(number, 0, "a")
    assert of.newest is None
    assert of.taking
    assert of.arrived(number, 1, "b")
    assert of.newest == {0: "a", 1: "b"}
    assert not of.taking


def test_states_of_two_captures_make_no_snapshot() -> None:
    of = rounds()
    first, second = of.begin([0, 1], 0).number, of.begin([0, 1], 0).number
    assert not of.arrived(second, 0, "new")
    assert not of.arrived(first, 1, "old")
    assert of.newest is None
    assert of.arrived(second, 1, "new")


def test_while_servers_are_restored_from_it_the_newest_stays_and_what_was_being_taken_is_dropped() -> None:
    of = rounds()
    taken(of, 0, "a")
    number = of.begin([0], 3).number
    assert of.hold() == SnapshotPause(30.0)
    assert not of.arrived(number, 0, "b")
    assert of.due() == SnapshotPause(HELD_SECONDS)
    of.release()
    assert not of.arrived(number, 0, "b"), "the lost server had part of it"
    assert of.due() == AskVersions()
    assert of.newest == {0: "a"}


def test_the_version_is_ahead_of_the_furthest_server() -> None:
    of = rounds()
    assert of.due() == AskVersions()
    assert of.versions([0, 1], [4, 6]) == (6, 1)
    of.arrived(1, 0, "a")
    of.arrived(1, 1, "b")
    assert of.versions([0, 1], [9, 8]) == (9 + AHEAD, 2)


def test_none_is_begun_where_a_server_was_lost_while_they_were_asked_for_their_versions() -> None:
    of = rounds()
    taken(of, 0, "a", "b")
    assert of.due() == AskVersions()
    assert of.hold() is None, "none was being taken"
    assert of.versions([0, 1], [3, 4]) == SnapshotPause(HELD_SECONDS)
    assert not of.taking
    of.release()
    assert of.due() == AskVersions()
    assert of.versions([0, 1], [3, 4]) == (4 + AHEAD, 2)


def test_the_next_one_is_due_so_long_after_the_end_of_the_last_and_the_rest_of_a_failed_one_is_dropped() -> None:
    of = rounds()
    number = of.begin([0, 1], 0).number
    of.arrived(number, 0, "a")
    assert of.ended() == SnapshotPause(30.0)
    assert not of.arrived(number, 1, "b"), "one of two states is no snapshot"
    assert of.newest is None
    taken(of, 0, "a", "b")
    assert of.ended() == SnapshotPause(30.0)
    assert of.newest == {0: "a", 1: "b"}


def test_a_server_keeps_each_slice_once_when_it_has_come_to_the_version() -> None:
    capture = WantedCapture(2)
    assert not capture.keeps(0, 5), "nothing is wanted"
    capture.want(12, 4)
    assert [capture.keeps(0, version) for version in (11, 12, 13)] == [False, True, False]
    assert not capture.complete
    assert capture.keeps(1, 14)
    assert capture.complete
    assert capture.number == 4


def test_another_capture_begins_anew_and_none_is_wanted_once_it_is_forgotten() -> None:
    capture = WantedCapture(1)
    capture.want(3)
    assert capture.keeps(0, 3)
    capture.want(5)
    assert not capture.complete
    assert not capture.keeps(0, 4)
    capture.want(FORGET)
    assert not capture.wanted
    assert not capture.keeps(0, 9)


def test_a_slice_without_versions_is_kept_at_once_and_all_are_when_nobody_trains() -> None:
    capture = WantedCapture(2)
    capture.want(8)
    assert capture.keeps(0, None)
    assert not capture.keeps(1, 7)
    capture.end()
    assert capture.keeps(1, 7)
