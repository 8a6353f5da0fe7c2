"""Who holds what."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError
from paceline.core.sharding import NOWHERE, SLICES_MAX, Layout, alike, lay_out
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
    with pytest.raises(ValueError, match=r"edges of slices must|holders for"):
        Layout(edges, holders)


# ---- servers that are not alike --------------------------------------------------------------------------
SPEEDS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=16)


def shards_of(layout: Layout) -> dict[int, list[slice]]:
    """The slices of each server."""
    shards: dict[int, list[slice]] = {}
    for holder, part in zip(layout.holders, layout.slices, strict=True):
        shards.setdefault(holder, []).append(part)
    return shards


def shard_ends(layout: Layout) -> list[int]:
    return [parts[-1].stop for parts in shards_of(layout).values()]


@given(LENGTHS, SPEEDS, SLICES)
def test_a_shard_is_as_large_as_its_server_is_fast(length: int, speeds: list[float], slice_length: int) -> None:
    layout = lay_out(length, len(speeds), slice_length, speeds=speeds)
    sizes = {server: parts[-1].stop - parts[0].start for server, parts in shards_of(layout).items()}
    assert sum(sizes.values()) == length
    assert min(sizes.values()) >= 1
    for server, speed in enumerate(speeds):
        wanted = length * speed / sum(speeds)
        assert sizes[server] <= wanted + len(speeds), "one element at least for everybody else"
        assert sizes[server] >= min(wanted - len(speeds), length - len(speeds))


@given(LENGTHS, SPEEDS, SLICES)
def test_the_first_layers_are_on_the_fastest_servers(length: int, speeds: list[float], slice_length: int) -> None:
    layout = lay_out(length, len(speeds), slice_length, speeds=speeds)
    along = [server for server, _ in itertools.groupby(layout.holders)]
    assert along == sorted(range(len(speeds)), key=lambda server: (-speeds[server], server))


@given(LENGTHS, SERVERS, SLICES, st.floats(0.01, 100.0))
def test_the_same_speed_everywhere_is_no_speed(length: int, servers: int, slice_length: int, speed: float) -> None:
    plain = lay_out(length, servers, slice_length)
    assert lay_out(length, servers, slice_length, speeds=[1.0] * servers) == plain
    again = lay_out(length, servers, slice_length, speeds=[speed] * servers)
    assert all(abs(a - b) <= 1 for a, b in zip(shard_ends(again), shard_ends(plain), strict=True))


@pytest.mark.parametrize(
    ("speeds", "same"), [((), True), ((3.0,), True), ((1.0, 1.25), True), ((1.0, 1.3), False), ((0.0, 9.0), True)]
)
def test_speeds_that_differ_by_a_quarter_are_alike(speeds: tuple[float, ...], same: bool) -> None:
    assert alike(speeds) == same


# ---- tensors that must stay whole ------------------------------------------------------------------------
TENSORS = st.lists(st.integers(1, 300), min_size=8, max_size=60)


@given(TENSORS, st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8), SLICES)
def test_no_tensor_is_cut_where_they_must_stay_whole(
    tensors: list[int], speeds: list[float], slice_length: int
) -> None:
    layout = lay_out(sum(tensors), len(speeds), slice_length, speeds=speeds, tensors=tensors)
    ends = {0, *itertools.accumulate(tensors)}
    assert set(layout.edges) <= ends
    assert set(layout.holders) == set(range(len(speeds)))
    assert all(
        b - a <= slice_length or not slice_length or not ends & set(range(a + 1, b))
        for a, b in itertools.pairwise(layout.edges)
    )


def test_tensors_are_packed_into_slices() -> None:
    assert lay_out(12, 1, 5, tensors=[2, 2, 7, 1]) == Layout((0, 4, 11, 12), (0, 0, 0))
    assert lay_out(12, 2, tensors=[2, 2, 7, 1]) == Layout((0, 4, 12), (0, 1))


def test_more_servers_than_tensors_that_must_stay_whole_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 servers cannot share 2 tensors that must stay whole: give --servers 2"):
        lay_out(12, 3, tensors=[5, 7])


# ---- servers that come and go ----------------------------------------------------------------------------
NUMBERS = st.lists(st.integers(0, 20), min_size=1, max_size=12, unique=True)
