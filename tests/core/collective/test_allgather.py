"""Gatherings along every schedule: each share comes to each member once, from one that has it."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.core.collective import PEERS, Fabric, GatheredShare, LinkCost, Path, choose, cost_of, gathering_for


def hosts_of(name: str, n: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(h, n, 3)) for h in range(min(3, n))) if name == "hierarchical" else ()


@pytest.mark.parametrize("name", PEERS)
def test_every_share_comes_to_every_member_once_from_one_that_had_it_before_the_step(name: str) -> None:
    for n in range(1, 33):
        gathering = gathering_for(name, n, hosts_of(name, n))
        has = [{member} for member in range(n)]
        for step in gathering.steps:
            assert all(t.first in has[t.src] for t in step)
            for t in step:
                assert t.first not in has[t.dst]
                has[t.dst].add(t.first)
        assert has == [set(range(n))] * n


@pytest.mark.parametrize("name", PEERS)
def test_shares_that_are_passed_on_as_they_come_reach_all_in_any_order(name: str) -> None:
    n = 7
    gathering = gathering_for(name, n, hosts_of(name, n))
    shares = [[GatheredShare(gathering, me, owner, owner, 1.0 + owner) for owner in range(n)] for me in range(n)]
    way = [(me, owner, o) for me in range(n) for owner in range(n) if owner == me for o in shares[me][owner].begin()]
    while way:
        src, owner, o = way.pop()  # the last one first
        way += [(o.dst, owner, more) for more in shares[o.dst][owner].take(o.step, src, o.v, o.weight)]
    assert all(
        share.done and (share.v, share.weight) == (owner, 1.0 + owner)
        for of in shares
        for owner, share in enumerate(of)
    )


def test_a_share_that_comes_twice_or_from_elsewhere_is_refused() -> None:
    share = GatheredShare(gathering_for("ring", 3), 0, 2)
    with pytest.raises(ValueError, match="member 1"):
        list(share.take(0, 1, "v", 1.0))
    list(share.take(0, 2, "v", 1.0))
    with pytest.raises(ValueError, match="member 2"):
        list(share.take(0, 2, "v", 1.0))


def test_whoever_speaks_for_a_host_alone_receives_from_others() -> None:
    hosts = ((0, 1, 2), (3, 4, 5))
    steps = gathering_for("hierarchical", 6, hosts).steps
    across = Counter((t.src, t.dst) for step in steps for t in step if (t.src < 3) != (t.dst < 3))
    assert across == {(0, 3): 3, (3, 0): 3}


def test_a_gathering_costs_the_shares_of_all_others() -> None:
    def path(a: int, b: int) -> Path:
        return Path(1.0, ((("from", a), 1.0), (("to", b), 1.0)))

    for name in ("ring", "pairwise", "butterfly"):
        assert cost_of(name, 4, path, gathered=True).seconds_per_byte == pytest.approx(3 / 4)
    assert cost_of("ring", 4, path, gathered=True).latency_s == 3
    here = Fabric(("here",) * 4, within=LinkCost(1e-4, 1e-9))
    assert choose(here, 1000, gathered=True).name in PEERS
