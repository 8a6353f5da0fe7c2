"""Properties of the graphs, for any number of workers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.local import topology
from paceline.core.local.topology import DIRECTED, hears_from, hops, is_active, paired_with, passive_beside, sends_to

counts = st.integers(1, 40)
rounds = st.integers(0, 200)
every_topology = pytest.mark.parametrize("name", DIRECTED)


@every_topology
@given(n=counts, k=rounds, seed=st.integers(0, 3))
def test_what_one_sends_is_what_another_hears(name: str, n: int, k: int, seed: int) -> None:
    sent = {(i, j) for i in range(n) for j in sends_to(name, i, k, n, seed)}
    heard = {(j, i) for i in range(n) for j in hears_from(name, i, k, n, seed)}
    assert sent == heard
    assert all(i != j and 0 <= j < n for i, j in sent)


@every_topology
@given(n=counts, k=rounds)
def test_nobody_is_named_twice_and_all_send_as_much_as_they_hear(name: str, n: int, k: int) -> None:
    """So push-sum weights stay 1: the mixing matrix is doubly stochastic."""
    for i in range(n):
        out, into = sends_to(name, i, k, n), hears_from(name, i, k, n)
        assert len(set(out)) == len(out) == len(into)


@given(n=st.integers(2, 64))
def test_on_the_exponential_graph_everybody_has_heard_of_everybody_after_as_many_rounds_as_hops(n: int) -> None:
    known = {i: {i} for i in range(n)}
    for k in range(hops(n)):
        known = {i: known[i].union(*(known[j] for j in hears_from("exponential", i, k, n))) for i in range(n)}
    assert hops(n) == math.floor(math.log2(n - 1)) + 1 if n > 2 else hops(n) == 1
    assert all(heard == set(range(n)) for heard in known.values())


@given(n=st.integers(2, 40), k=rounds, seed=st.integers(0, 5))
def test_random_pairs_are_pairs_and_at_most_one_rests(n: int, k: int, seed: int) -> None:
    partners = [paired_with(i, k, n, seed) for i in range(n)]
    assert partners.count(None) == n % 2
    assert all(p is None or (p != i and partners[p] == i) for i, p in enumerate(partners))


@pytest.mark.parametrize("n", [2, 5, 8])
def test_over_the_rounds_everybody_is_paired_with_everybody(n: int) -> None:
    for i in range(n):
        met = {paired_with(i, k, n) for k in range(40 * n)}
        assert met - {None} == set(range(n)) - {i}


def groups_of(n: int, gone: set[int]) -> tuple[set[int], set[int]]:
    there = [rank for rank in range(n) if rank not in gone]
    active = {rank for rank in there if is_active(rank, gone)}
    return active, set(there) - active


@given(n=st.integers(1, 24), gone=st.sets(st.integers(0, 23), max_size=12))
def test_on_the_ring_active_workers_have_passive_neighbours_only_and_all_are_connected(n: int, gone: set[int]) -> None:
    gone = {rank for rank in gone if rank < n}
    active, passive = groups_of(n, gone)
    assert 0 <= len(active) - len(passive) <= 1
    edges = {rank: passive_beside(rank, n, gone) for rank in active}
    assert all(set(beside) <= passive and 0 <= len(beside) <= 2 for beside in edges.values())
    if len(active) + len(passive) > 1:
        reached, new = set[int](), {min(active)}
        while new:
            reached |= new
            new = {b for a, beside in edges.items() for b in (*beside, a) if reached & {a, *beside}} - reached
        assert reached == active | passive


def test_an_unknown_topology_is_refused_naming_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="'star'; there are: exponential, ring, complete, random"):
        topology.sends_to("star", 0, 0, 4)
