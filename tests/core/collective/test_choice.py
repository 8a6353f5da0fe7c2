"""What schedules cost by the usual model, and which of them `auto` takes."""

from __future__ import annotations

import pytest

from paceline.core.collective import Fabric, LinkCost, choose, groups, homes_of
from paceline.core.collective.choice import UNMEASURED

ALPHA, BETA = 1e-4, 1e-9


LINK = LinkCost(ALPHA, BETA)


@pytest.mark.parametrize(
    ("workers", "nbytes", "servers", "taken"),
    [
        (7, 400, 0, "butterfly"),  # six steps and not twelve
        (7, 4 * 10**8, 0, "pairwise"),  # of those that move least, the one that passes nothing on
        (8, 400, 0, "blocks"),
        (2, 4 * 10**8, 1, "pairwise"),  # a server would take in and give out two vectors
        (2, 4, 1, "servers"),  # there and back, as fast as any
    ],
)
def test_auto_takes_what_costs_least(workers: int, nbytes: int, servers: int, taken: str) -> None:
    choice = choose(Fabric(("here",) * workers, within=LINK, servers=servers), nbytes)
    assert choice.name == taken
    assert choice.reason.startswith(f"{taken}: {nbytes / 1e6:.3g} MB among {workers} workers on one host take ")


def test_over_slow_links_one_worker_speaks_for_its_host() -> None:
    homes = ("a", "b") * 3  # ranks alternate between the hosts, so a ring would cross in every hop
    fabric = Fabric(homes, within=LinkCost(1e-6, 1e-10), across=LinkCost(1e-3, 1e-8))
    assert choose(fabric, 4 * 10**7).name == "hierarchical"
    assert "on 2 hosts" in choose(fabric, 4 * 10**7).reason


def test_links_that_nobody_measured_are_taken_for_ordinary_ones() -> None:
    homes, fast = ("a", "a", "b", "b"), LinkCost(1e-6, 1e-10)
    for nbytes in (10**3, 10**8):
        assert choose(Fabric(homes), nbytes) == choose(Fabric(homes, UNMEASURED, UNMEASURED), nbytes)
        assert choose(Fabric(homes, within=fast), nbytes) == choose(Fabric(homes, fast, UNMEASURED), nbytes)
    assert choose(Fabric(homes), 10**8).reason.startswith("ring: 100 MB among 4 workers on 2 hosts take 151 ms")


def test_members_are_told_apart_by_their_hosts_and_by_themselves_where_none_is_known() -> None:
    assert groups(homes_of((4, 1, 2), ("x", "y", "x", "x", "y"))) == ((0, 1), (2,))
    assert groups(homes_of((0, 1), ())) == ((0,), (1,))
