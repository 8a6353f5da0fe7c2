"""What processes use, and what links carry."""

from __future__ import annotations

import pytest

from paceline.core.trace import LinkTraffic, ResourceUse
from paceline.observe.watch import resource_rates
from paceline.observe.watch.resource_rates import Resources


def told(at: float, sent: int, received: int, other: str = "server 0", party: str = "worker 1") -> LinkTraffic:
    return LinkTraffic(at=at, party=party, other=other, sent=sent, received=received, seconds=2.0)


def test_the_throughput_of_a_link_is_that_of_the_last_seconds() -> None:
    resources = Resources()
    for at, sent in ((2.0, 10_000), (4.0, 10_000), (6.0, 400), (8.0, 200), (10.0, 600)):
        resources.add(told(at, sent, 2 * sent))
    (row,) = resources.rows(now=10.5)
    assert row == {
        "party": "worker 1",
        "other": "server 0",
        "rate": [200, 400],
        "most": 15_000,
        "bytes": [21_200, 42_400],
    }


def test_a_link_of_which_nothing_is_heard_carries_nothing() -> None:
    resources = Resources()
    resources.add(told(2.0, 100, 100))
    assert resources.rows(now=4.0)[0]["rate"] == [50, 50]
    assert resources.rows(now=8.0)[0]["rate"] == [0, 0]
    resources.add(told(60.0, 100, 100))
    assert resources.rows(now=60.0)[0]["rate"] == [50, 50], "what was long ago counts no more"


def test_the_busiest_links_are_the_first_and_a_party_has_its_own() -> None:
    resources = Resources()
    for other, sent in (("server 0", 5), ("server 1", 500), ("server 2", 50)):
        resources.add(told(2.0, sent, 0, other))
    resources.add(told(2.0, 7, 0, "worker 1", "worker 2"))
    assert [row["other"] for row in resources.rows(2.0)] == ["server 1", "server 2", "worker 1", "server 0"]
    assert [row["other"] for row in resources.rows(2.0, count=1)] == ["server 1"]
    assert [row["party"] for row in resources.rows(2.0, "worker 2")] == ["worker 2"]
    assert len(resources.rows(2.0, "worker 1")) == 4


def test_links_beyond_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_rates, "LINKS_KEPT", 2)
    resources = Resources()
    for n in range(5):
        resources.add(told(2.0, 1, 1, f"server {n}"))
    assert len(resources.rows(2.0)) == 2


def test_what_a_process_uses_is_what_it_told_last() -> None:
    resources = Resources()
    assert resources.of("worker 0") is None
    resources.add(ResourceUse(at=1.0, party="worker 0", memory_bytes=5, cores=0.126))
    assert resources.of("worker 0") == {"memory": 5, "cores": 0.13, "device": None, "busy": None}
    resources.add(
        ResourceUse(
            at=2.0,
            party="worker 0",
            memory_bytes=6,
            cores=1.0,
            device_bytes=3,
            device_total_bytes=80,
            device_share=0.5,
        )
    )
    assert resources.of("worker 0") == {"memory": 6, "cores": 1.0, "device": [3, 80], "busy": 0.5}
