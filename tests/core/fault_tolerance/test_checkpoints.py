"""What a checkpoint keeps of the servers' tables, and what a run begins with that is resumed from it."""

from __future__ import annotations

from typing import Any

from paceline.core.fault_tolerance.checkpoints import kept_tables, resumed_tables, with_forgotten

KEPT: dict[str, Any] = {
    "version": 7,
    "clocks": [[0, 3], [2, 4]],
    "seen": [[0, 5], [2, 7]],
    "shift": [[2, 1]],
    "done": [[0, 0, 5]],
    "samples_seen": 40,
}


def test_the_slice_that_reports_samples_speaks_for_all() -> None:
    slices = [KEPT, {**KEPT, "version": 8, "done": []}]
    assert [kept_tables(slices)["version"], kept_tables(slices, 1)["version"]] == [7, 8]


def test_a_worker_that_servers_have_forgotten_is_kept_with_its_own_clock() -> None:
    assert with_forgotten(KEPT, {0: 9, 1: 2, 2: 9})["clocks"] == [[0, 3], [2, 4], [1, 2]]
    assert KEPT["clocks"] == [[0, 3], [2, 4]]
    assert with_forgotten({}, {0: 1}) == {}


def test_all_workers_are_there_from_the_beginning_and_nobody_is_a_newcomer() -> None:
    done = ((0, 0, 5),)
    tables = resumed_tables(KEPT, range(3), done, samples=99)
    assert tables["clocks"] == [[0, 3], [1, 3], [2, 4]]
    assert tables["seen"] == [[0, 5], [1, 7], [2, 7]]
    assert (tables["shift"], tables["done"], tables["version"], tables["samples_seen"]) == ([], done, 7, 40)


def test_samples_are_taken_from_the_checkpoint_where_the_tables_do_not_say_and_own_entries_of_a_scheme_stay() -> None:
    kept = {name: value for name, value in KEPT.items() if name != "samples_seen"} | {"turn": 6}
    tables = resumed_tables(kept, range(3), (), samples=99)
    assert (tables["samples_seen"], tables["turn"]) == (99, 6)
