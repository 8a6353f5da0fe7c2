"""Who holds what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError
from paceline.core.sharding import NOWHERE, SLICES_MAX, Layout, lay_out
from paceline.core.vector import cut

LENGTHS, SERVERS, SLICES = st.integers(64, 10_000), st.integers(1, 64), st.integers(0, 500)


@given(LENGTHS, SERVERS, SLICES)
def test_every_element_is_in_one_slice(length: int, servers: int, slice_length: int) -> None:
    layout = lay_out(length, servers, slice_length)
    assert [i for part in layout.slices for i in range(length)[part]] == list(range(length))
    assert layout.length == length
    assert len(layout.slices) == len(layout.holders)


@given(LENGTHS, SERVERS, SLICES)
def test_equal_servers_hold_equal_shards_however_they_are_sliced(length: int, servers: int, slice_length: int) -> None:
    layout = lay_out(length, servers, slice_length)
    parts = layout.slices
    shards = [[parts[k] for k in layout.of(server)] for server in range(servers)]
    assert [slice(pieces[0].start, pieces[-1].stop) for pieces in shards] == list(cut(length, servers))


@given(LENGTHS, SERVERS, st.integers(1, 500))
def test_no_slice_is_longer_than_asked_for_and_those_of_a_shard_are_even(
    length: int, servers: int, slice_length: int
) -> None:
    layout = lay_out(length, servers, slice_length)
    allowed = max(slice_length, -(-length // SLICES_MAX))
    parts = layout.slices
    for server in range(servers):
        sizes = [parts[k].stop - parts[k].start for k in layout.of(server)]
        assert max(sizes) <= allowed
        assert max(sizes) - min(sizes) <= 1


@given(LENGTHS, SERVERS, SLICES)
def test_a_slice_is_found_at_its_holder(length: int, servers: int, slice_length: int) -> None:
    layout = lay_out(length, servers, slice_length)
    held = [layout.of(server) for server in range(servers)]
    assert [held[server][at] for server, at in layout.homes()] == list(range(len(layout.slices)))


def test_without_slices_a_shard_is_one() -> None:
    assert lay_out(10, 3) == Layout((0, 3, 6, 10), (0, 1, 2))
    assert lay_out(10, 2, 2) == Layout((0, 1, 3, 5, 6, 8, 10), (0, 0, 0, 1, 1, 1))


def test_without_servers_the_model_is_whole() -> None:
    layout = lay_out(10, 0, 2)
    assert (layout.slices, layout.homes()) == ((slice(0, 10),), ())
    assert (NOWHERE.slices, NOWHERE.homes(), NOWHERE.length) == ((), (), 0)


def test_more_servers_than_parameters_are_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="4 servers cannot share 3 parameters: give --servers 3 or less"):
        lay_out(3, 4)


@pytest.mark.parametrize(
    ("edges", "holders"),
    [((), ()), ((1, 2), (0,)), ((0, 2, 2), (0, 0)), ((0, 2, 1), (0, 0)), ((0, 2), (0, 0)), ((0, 1, 2), ())],
)
def test_what_is_no_layout_is_refused(edges: tuple[int, ...], holders: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"slices are not empty|holders of"):
        Layout(edges, holders)
