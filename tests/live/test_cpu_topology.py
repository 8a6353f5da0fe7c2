"""CPUs of a machine as Linux describes them, and lists of CPUs as text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.live.cpu_topology import (
    SYSTEM,
    Cpu,
    allowed_cpus,
    check_binding,
    parse_binding,
    parse_cpus,
    read_topology,
    written_cpus,
)


def system_of(
    folder: Path, siblings: Mapping[int, str], nodes: Mapping[int, str], online: str, name: str = "core_cpus_list"
) -> Path:
    """A /sys/devices/system with these files."""
    for cpu, listed in siblings.items():
        (folder / "cpu" / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (folder / "cpu" / f"cpu{cpu}" / "topology" / name).write_text(f"{listed}\n")
    for node, listed in nodes.items():
        (folder / "node" / f"node{node}").mkdir(parents=True)
        (folder / "node" / f"node{node}" / "cpulist").write_text(f"{listed}\n")
    (folder / "cpu" / "online").write_text(f"{online}\n")
    return folder


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_threads_of_a_core_and_cores_of_a_node_are_found(tmp_path: Path, name: str) -> None:
    """Two sockets of two cores with two threads each, numbered as Linux does on Intel's machines."""
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    system = system_of(tmp_path, siblings, {0: "0-1,4-5", 1: "2-3,6-7"}, "0-7", name)
    found = read_topology(range(8), system)
    assert [(cpu.number, cpu.core, cpu.node) for cpu in found] == [
        *((0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 3, 1)),
        *((4, 0, 0), (5, 1, 0), (6, 2, 1), (7, 3, 1)),
    ]


def test_only_cpus_that_are_online_and_allowed_count(tmp_path: Path) -> None:
    system = system_of(tmp_path, {0: "0,2", 1: "1", 2: "0,2"}, {0: "0-3"}, "0-2")
    assert [cpu.number for cpu in read_topology({1, 2, 3}, system)] == [1, 2]
    assert read_topology({2}, system) == (Cpu(2, core=0, node=0),), "its core has another thread that is not ours"


def test_where_the_system_says_nothing_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert read_topology({3, 5}, tmp_path) == (Cpu(3, 3), Cpu(5, 5))


def test_of_this_machine_it_finds_what_psutil_finds() -> None:
    psutil = pytest.importorskip("psutil")
    if not SYSTEM.exists():
        pytest.skip("no /sys")
    allowed = allowed_cpus()
    assert allowed == set(psutil.Process().cpu_affinity())
    found = read_topology(allowed)
    assert [cpu.number for cpu in found] == sorted(allowed)
    everything = read_topology(range(os.cpu_count() or 1))
    assert len(everything) == psutil.cpu_count(logical=True)
    if cores := psutil.cpu_count(logical=False):
        assert len({cpu.core for cpu in everything}) == cores


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", {0}), ("0-3", {0, 1, 2, 3}), ("0-1,8", {0, 1, 8}), ("7,0-1", {0, 1, 7}), ("2,3,5", {2, 3, 5})],
)
def test_lists_are_read_and_written(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus
    assert parse_cpus(written_cpus(cpus)) == cpus


def test_a_list_is_written_as_short_as_it_can_be() -> None:
    assert written_cpus([9, 0, 1, 2, 3, 5]) == "0-3,5,9"
    assert written_cpus([]) == ""


@pytest.mark.parametrize("text", ["", "all", "3-1", "-1", "0-", "0,,1", "0-99999999", "0-3/", "0x1"])
def test_what_is_no_list_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^give auto, none, CPUs for all workers"):
        check_binding(text)


def test_a_binding_is_for_all_workers_or_for_each() -> None:
    assert parse_binding("auto") == parse_binding("none") == ()
    assert parse_binding("0-1,4") == ({0, 1, 4},)
    assert parse_binding("0-1/2,3") == ({0, 1}, {2, 3})
