"""Cluster files: what they may say, and what is refused in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.sim import examples, load
from paceline.sim.cluster.toml_file import parse

EVERYTHING = """
about = "one of each"
step_s = 0.5
suspect_after_s = 3
[network]
latency_s = 0.001
incast = 0.5
[[hosts]]
name = "gpu"
count = 2
site = "a"
servers = 1
spot = {life_s = 100, away_s = 5}
[[hosts.devices]]
count = 3
factor = 2
jitter = 0.1
[[hosts]]
name = "cpu"
site = "b"
joins_at_s = 10
[[hosts.devices]]
trace = [1.0, 2.0, 3.0]
bursts = {every_s = 60, for_s = 5, factor = 3}
[[links]]
between = ["a", "b"]
latency_s = 0.02
bandwidth_gbps = 1
[[faults]]
kind = "pause"
at_s = 5
for_s = 1
hosts = ["gpu-1"]
"""


def test_a_file_says_who_is_where() -> None:
    cluster = parse(EVERYTHING)
    assert (cluster.workers, cluster.servers, cluster.suspect_after_s) == (7, 2, 3.0)
    assert [placement.host_name for placement in cluster.worker_placements()] == ["gpu-0"] * 3 + ["gpu-1"] * 3 + ["cpu"]
    assert [placement.host_name for placement in cluster.server_placements()] == ["gpu-0", "gpu-1"]
    assert cluster.seconds_per_step() == (1.0,) * 6 + (2.0,)
    assert cluster.without_servers().servers == 0
    assert cluster.without_servers().workers == 7


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("step_s", "stepp_s"), "unknown key stepp_s; did you mean 'step_s'?"),
        (("jitter", "giter"), "unknown key hosts.devices.giter; did you mean 'jitter'?"),
        (("count = 2", "count = 2.5"), "hosts.count = 2.5: must be int, not float"),
        (("every_s = 60, ", ""), "hosts.devices.bursts needs every_s"),
        (("factor = 2\n", "factor = 2\nseconds = 1\n"), "device: give only one of factor, seconds and trace"),
        (('"pause"', '"paus"'), "faults.kind = 'paus'; there are crash, restart, leave,"),
        (('hosts = ["gpu-1"]', 'hosts = ["gpu-2"]'), "pause at 5 s: this cluster has no gpu-2"),
        (("for_s = 1\n", ""), "pause: give for_s, how long it lasts"),
        (('["a", "b"]', '["a", "c"]'), "a link between a and c: no such site"),
        (("[network]", "[network"), "Expected ']'"),
        (('name = "cpu"', 'name = "gpu"'), "two hosts have the same name"),
        (('name = "cpu"', 'name = "gpu-1"'), "two hosts have the same name"),
        (("trace = [1.0, 2.0, 3.0]", "trace = 3"), "hosts.devices.trace must be a list"),
        (("step_s = 0.5", "step_s = inf"), "step_s = inf: must be a finite number"),
        (("[1.0, 2.0, 3.0]", "[1.0, nan]"), "hosts.devices.trace = nan: must be a finite number"),
        (("count = 3", "count = 3000000"), "6000003 workers and servers: a cluster has 1000000 at most"),
        (("[[faults]]", '[[links]]\nbetween = ["b", "a"]\nlatency_s = 1\nbandwidth_gbps = 1\n[[faults]]'), "two links"),
        (('"pause"', '"leave"'), "leave is over at once: leave out for_s"),
        (("for_s = 1\n", "for_s = 1\nextra_s = 1\n"), "pause: extra_s means nothing here"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(change: tuple[str, str], complaint: str) -> None:
    assert change[0] in EVERYTHING
    with pytest.raises(ConfigError) as refused:
        parse(EVERYTHING.replace(*change, 1), "my.toml")
    assert str(refused.value).startswith("my.toml: ")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


SERVERS_APART = """
[[hosts]]
name = "gpu"
[[hosts.devices]]
[[hosts]]
name = "store"
servers = 1
"""


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ('[[faults]]\nkind = "crash"\nat_s = 1\nhosts = ["store"]', "crash at 1 s: no worker is there; servers crash"),
        ('[[faults]]\nkind = "leave"\nat_s = 1\nhosts = ["store"]', "leave at 1 s: no worker is there"),
        (
            '[hazards]\n[[faults]]\nkind = "disk-full"\nat_s = 1\nfor_s = 1\nhosts = ["gpu"]',
            "disk-full at 1 s: no server is there",
        ),
        (
            '[[faults]]\nkind = "partition"\nat_s = 1\nfor_s = 1\nsites = ["site"]',
            "partition at 1 s: no site is left to be cut off from",
        ),
        ("leaves_at_s = 5", "store: spot, joins_at_s and leaves_at_s are for hosts of workers"),
        ("spot = {life_s = 5}", "store: spot, joins_at_s and leaves_at_s are for hosts of workers"),
    ],
)
def test_what_nothing_would_come_of_is_refused(more: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        parse(SERVERS_APART + more)


def test_without_servers_the_faults_of_workers_stay() -> None:
    both = '[hazards]\n[[faults]]\nkind = "pause"\nat_s = 1\nfor_s = 1\nhosts = ["gpu", "store"]'
    cluster = parse(f'{SERVERS_APART}{both}\n[[faults]]\nkind = "crash"\nat_s = 2\nhosts = ["store"]')
    assert [(f.kind, f.hosts) for f in cluster.without_servers().faults] == [("pause", ("gpu",))]


def test_a_file_is_loaded_by_its_path_and_an_example_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(EVERYTHING)
    assert load(path).workers == load(str(path)).workers == 7
    assert load(path).name == "mine"
    with pytest.raises(ConfigError, match="did you mean 'two-sites'"):
        load("two-site")
    with pytest.raises(ConfigError, match="cannot read the cluster file"):
        load(tmp_path / "absent.toml")


def test_the_examples_are_those_of_the_manual() -> None:
    assert examples() == ["esync-paper", "phones-10000", "spot-1000", "two-generations", "two-sites"]
    assert load("esync-paper").seconds_per_step() == (3.5, 3.5, 0.03, 0.03, 0.03, 0.03)
    assert load("spot-1000").workers == 1000
    assert load("phones-10000").workers == 10_000
