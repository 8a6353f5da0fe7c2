"""How the model of a run is cut over its servers, and what is said about it."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest

from paceline.config import build
from paceline.core.coordination.control_messages import Hello, Ready
from paceline.core.errors import ConfigError
from paceline.engine.specs import OptimizerRecipe
from paceline.live.control.link_probe import LinkRounds
from paceline.live.node.published_state import FREIGHT
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.shard_layout import lay_out, measured_speeds


def ready(*links: float, scheme: str = "bsp", length: int = 1000, **more: Any) -> Ready:
    recipe = Recipe(scheme=scheme, optimizer=more.pop("optimizer", OptimizerRecipe())).to_json()
    return Ready(length=length, fingerprint="f", seconds_per_step=0.1, optimizer=recipe, links=links, **more)


def server(speed: float, host: str = "here") -> Hello:
    return Hello(address="a", pid=1, host=host, device="cpu", bytes_per_second=speed)


def test_servers_of_one_host_are_equally_fast_whatever_they_measured() -> None:
    speeds = measured_speeds([ready()], [server(3e9), server(9e9), server(4e9, "there")])
    assert speeds == [(9e9, 9e9), (9e9, 9e9), (4e9, 4e9)]


def test_a_server_takes_no_more_than_its_link_brings() -> None:
    servers = [server(8e9), server(8e9, "there"), server(1e9, "afar")]
    speeds = measured_speeds([ready(0.0, 2e9, 3e9), ready(0.0, 4e9, 5e9), ready()], servers)
    assert speeds == [(8e9, 8e9), (3e9, 3e9), (1e9, 1e9)]


# ---- noise -------------------------------------------------------------------------------------------------
class Busy:
    """A link on which a byte takes so long, between hosts that are busy with something else now and then.

    Each look takes up to twice as long as it should. A quarter of the looks, and a sixth of the moments in which links
    are measured, are 16 times as slow.
    """

    def __init__(self, seconds: float, draw: random.Random) -> None:
        self._seconds, self._draw = seconds, draw

    def measured(self) -> tuple[float, float]:
        link = LinkRounds(self._look)
        for _ in range(3):
            self._moment = 16.0 if self._draw.random() < 1 / 6 else 1.0
            link.measure()
        return link.speeds

    def _look(self, what: str) -> float:
        busy = 16.0 if self._draw.random() < 1 / 4 else 1.0
        seconds = 1e-4 + (self._seconds if what == FREIGHT else 0.0)
        return seconds * max(self._moment, busy) * self._draw.uniform(1.0, 2.0)


def drawn_share(seed: int, slower: float = 1.0) -> float:
    """The share of the first of two servers, whose link is so many times slower than the other's."""
    draw = random.Random(f"layout/{seed}")
    links = [Busy(0.01 * slower, draw).measured(), Busy(0.01, draw).measured()]
    answers = [
        ready(0.0, links[1][0], links_max=(0.0, links[1][1])),
        ready(links[0][0], 0.0, links_max=(links[0][1], 0.0)),
    ]
    layout, _ = lay_out(answers, [server(8e9, "a"), server(8e9, "b")], shards="measured")
    return sum(layout.slices[k].stop - layout.slices[k].start for k in layout.of(0)) / 1000


def test_like_hosts_hold_like_shards_however_noisy_the_measurements_are() -> None:
    shares = [drawn_share(seed) for seed in range(2000)]
    assert sum(share == 0.5 for share in shares) >= 0.9 * len(shares)
    far_off = [seed for seed, share in enumerate(shares) if not 1 / 3 < share < 2 / 3]
    assert len(far_off) <= 0.02 * len(shares), far_off  # a link that was busy at all three moments


def test_unlike_hosts_hold_unlike_shards_in_spite_of_it() -> None:
    shares = [drawn_share(seed, slower=4.0) for seed in range(2000)]
    assert statistics.median(shares) == pytest.approx(0.2, abs=0.05)
    assert sum(0.1 < share < 0.35 for share in shares) >= 0.9 * len(shares)


@pytest.mark.parametrize(("slower", "size"), [(1.0, 500), (1.2, 500), (1.24, 500), (1.3, 435), (4.0, 200)])
def test_servers_within_a_fifth_of_the_fastest_count_as_alike(slower: float, size: int) -> None:
    layout, _ = lay_out([ready()], [server(5e9 / slower, "a"), server(5e9, "b")], shards="measured")
    sizes = [layout.slices[k].stop - layout.slices[k].start for s in range(2) for k in layout.of(s)]
    assert min(sizes) == size


@pytest.mark.parametrize(
    ("servers", "shards", "sizes", "sentence"),
    [
        ([1e9], "measured", [1000], "1,000 parameters on 1 server"),
        ([], "measured", [], "1,000 parameters on every worker, no servers"),
        ([1e9, 9e9], "equal", [500, 500], "1,000 parameters on 2 servers: equal shards (as --shards says)"),
        ([0.0, 9e9], "measured", [500, 500], "1,000 parameters on 2 servers: equal shards (nobody has measured them)"),
        (
            [8e9, 9e9],
            "measured",
            [500, 500],
            "1,000 parameters on 2 servers: equal shards (measured at 8.0, 9.0 GB/s, which counts as alike)",
        ),
        (
            [2e9, 8e9],
            "measured",
            [200, 800],
            "1,000 parameters on 2 servers: 20 %, 80 % (measured at 2.0, 8.0 GB/s); server 1 has the beginning",
        ),
        (
            [1e9, 1e9],
            "3,1",
            [750, 250],
            "1,000 parameters on 2 servers: 75 %, 25 % (as --shards says); server 0 has the beginning",
        ),
    ],
)
def test_shards_follow_what_was_measured_or_asked_for(
    servers: list[float], shards: str, sizes: list[int], sentence: str
) -> None:
    hellos = [server(speed, host=f"host {s}") for s, speed in enumerate(servers)]
    layout, said = lay_out([ready()], hellos, shards=shards)
    parts = layout.slices
    assert [sum(parts[k].stop - parts[k].start for k in layout.of(s)) for s in range(len(servers))] == sizes
    assert said == sentence


def test_slices_are_as_large_as_asked_for() -> None:
    layout, said = lay_out([ready(length=10_000)], [server(1e9)], slice_mb=4 * 2000 / 2**20)
    assert [part.stop - part.start for part in layout.slices] == [2000] * 5
    assert said == "10,000 parameters on 1 server, 5 slices"


def test_where_one_shard_decides_who_is_held_no_shard_is_cut_into_slices() -> None:
    layout, _ = lay_out([ready(scheme="partial")], [server(1e9), server(1e9)], slice_mb=1e-4)
    assert layout.holders == (0, 1)


def test_tensors_that_must_stay_whole_are_not_cut() -> None:
    layout, _ = lay_out([ready(tensors=(700, 100, 200))], [server(1e9), server(1e9)], slice_mb=4 * 100 / 2**20)
    assert (layout.edges, layout.holders) == ((0, 700, 800, 1000), (0, 1, 1))


def test_where_the_whole_gradient_is_clipped_the_shard_is_one_slice() -> None:
    clipping = ready(optimizer=OptimizerRecipe(clip_norm=1.0))
    layout, _ = lay_out([clipping], [server(1e9)], slice_mb=4 * 100 / 2**20)
    assert layout.edges == (0, 1000)


def test_clipping_on_several_servers_is_refused_unless_workers_do_it() -> None:
    several: dict[str, Any] = {"cluster": {"servers": 2}, "optimizer": {"clip_norm": 1.0}}
    with pytest.raises(ConfigError, match="each of 2 servers sees a part of it: give --servers 1"):
        build({**several, "run": {"scheme": "asp"}})
    for scheme in ("bsp", "localsgd"):
        assert build({**several, "run": {"scheme": scheme}}).scheme().server(2) is None
    assert build({"run": {"scheme": "bsp"}, "optimizer": {"clip_norm": 1.0}}).scheme().server(1) is not None


@pytest.mark.parametrize(("shards", "total"), [("0.5,0.2", "0.7"), ("0.9,0.9", "1.8"), ("0.5", "0.5")])
def test_fractions_that_do_not_add_up_to_1_are_refused(shards: str, total: str) -> None:
    with pytest.raises(ConfigError, match=f"--shards.*fractions add up to {total}: give ones that add up to 1"):
        build({"cluster": {"servers": shards.count(",") + 1, "shards": shards}})


@pytest.mark.parametrize("shards", ["0.33,0.33,0.33", "0.5,0.3,0.2", "3,1,0.5", "1,1,1"])
def test_fractions_may_be_rounded_and_a_ratio_needs_no_sum(shards: str) -> None:
    assert build({"cluster": {"servers": 3, "shards": shards}}).cluster.shards == shards


@pytest.mark.parametrize("shards", ["fast", "0.5,", "0.5,0", "0.5,-1", "0.5,nan", "inf,1"])
def test_what_is_no_fraction_is_refused(shards: str) -> None:
    with pytest.raises(ConfigError, match="--shards"):
        build({"cluster": {"servers": 2, "shards": shards}})


def test_there_is_a_fraction_for_every_server() -> None:
    cluster: dict[str, Any] = {"servers": 3, "shards": "0.5,0.5"}
    with pytest.raises(ConfigError, match="--shards names 2 servers, --servers says 3"):
        build({"cluster": cluster})
