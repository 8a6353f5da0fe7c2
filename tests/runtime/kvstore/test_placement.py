"""Which server holds what of a key: every element once, and the same on every worker."""

from __future__ import annotations

import math

import pytest

from paceline.runtime.kvstore.placement import ValuePart, parts_of, row_width, text_of


@pytest.mark.parametrize("shape", [(), (7,), (10, 3), (2, 50), (101, 4), (5, 3, 2)])
@pytest.mark.parametrize("servers", [1, 2, 3, 5])
def test_every_element_is_in_one_part(shape: tuple[int, ...], servers: int) -> None:
    parts = parts_of("w", shape, servers, bound=1)
    edges = [0, *(part.at.stop for part in parts)]
    assert [part.at.start for part in parts] == edges[:-1]
    assert edges[-1] == math.prod(shape)
    assert sum(part.length for part in parts) == math.prod(shape)


def test_large_values_are_cut_over_all_servers_between_rows() -> None:
    assert parts_of("w", (10, 3), 3, bound=30) == (
        ValuePart(0, slice(0, 9)),
        ValuePart(1, slice(9, 21)),
        ValuePart(2, slice(21, 30)),
    )


def test_with_fewer_rows_than_servers_rows_are_cut() -> None:
    parts = parts_of("w", (2, 6), 3, bound=1)
    assert [part.length for part in parts] == [4, 4, 4]
    assert row_width((2, 6), parts) == 0


def test_small_values_are_whole_on_a_server_that_their_key_names() -> None:
    homes = [parts_of(key, (29,), 4, bound=30) for key in range(100)]
    assert {len(parts) for parts in homes} == {1}
    assert {parts[0].server for parts in homes} == {0, 1, 2, 3}
    assert homes == [parts_of(key, (29,), 4, bound=30) for key in range(100)]


def test_a_number_and_its_text_are_two_keys() -> None:
    assert text_of(3) != text_of("3")


def test_rows_are_known_where_every_part_has_whole_ones() -> None:
    assert row_width((10, 3), parts_of("w", (10, 3), 3, bound=1)) == 3
    assert row_width((10, 3, 2), parts_of("w", (10, 3, 2), 3, bound=1)) == 0
    assert row_width((10, 0), ()) == 0
