"""What a hosts file says becomes settings, unless the user says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.launch.remote.host_settings import fit, hosts_of, is_address, only_used
from paceline.launch.remote.placement import Placement, place


def placed(text: str, tmp_path: Path, workers: int, servers: int = 0) -> Placement:
    path = tmp_path / "hosts"
    path.write_text(text)
    return place(hosts_of(str(path)), workers, servers)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--hosts .*missing: No such file"):
        hosts_of(str(tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is no text"):
        hosts_of(str(tmp_path / "binary"))
    assert hosts_of(None) == ()


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.0.0.1", True), ("fe80::1", True), ("10.0.0.0/8", False), ("eth0", False), (None, False)],
)
def test_an_address_is_told_from_an_interface_and_a_network(text: str | None, address: bool) -> None:
    assert is_address(text) is address


def test_hosts_without_anything_to_do_are_left_out(tmp_path: Path) -> None:
    placement = placed("a slots=1\nb slots=1\nc slots=2", tmp_path, workers=2)
    used = only_used(placement, 2, 0)
    assert [host.name for host in used.hosts] == [placement.hosts[number].name for number in placement.used()]
    assert [used.hosts[at].name for at in used.workers] == [placement.hosts[at].name for at in placement.workers]
    assert len(used.hosts) == 2


def test_gpus_and_groups_of_the_file_become_settings(tmp_path: Path) -> None:
    values: dict[str, Any] = {"cluster": {}}
    fit(values, placed("a slots=1 gpus=3 group=x\nb slots=1 group=y", tmp_path, workers=2), "10.0.0.1")
    groups = {name: {"groups": "0;1"} for name in ("gsp", "tiers", "halos")}
    assert values == {"cluster": {"bind": "10.0.0.1", "device": "cuda:3,auto"}, **groups}


def test_hosts_and_labels_of_the_file_may_be_groups_and_others_are_refused(tmp_path: Path) -> None:
    placement = placed("a slots=2 group=x\nb slots=1 group=y\nc slots=1 group=y", tmp_path, workers=4)
    for text, ranks in (("a;b c", "0,1;2,3"), ("y;x", "2,3;0,1")):
        values: dict[str, Any] = {"cluster": {}, "tiers": {"groups": text}}
        fit(values, placement, "10.0.0.1")
        assert values["tiers"] == {"groups": ranks}
    with pytest.raises(ConfigError, match=r"'d' is no rank, and no name that there is; hosts: a, b, c; labels: x, y"):
        fit({"cluster": {}, "tiers": {"groups": "a;b d"}}, placement, "10.0.0.1")


def test_a_node_becomes_a_worker_of_several_processes(tmp_path: Path) -> None:
    values: dict[str, Any] = {"cluster": {}}
    fit(values, placed("a gpus=0,1 worker=node\nb gpus=4 slots=1", tmp_path, workers=2), "10.0.0.1")
    assert values["cluster"] == {"bind": "10.0.0.1", "device": "cuda:0+1,cuda:4", "ranks": "2,1"}


@pytest.mark.parametrize(("said", "limits"), [({}, [96, 96, 0]), ({"batch_limits": [8]}, [8])])
def test_largest_batches_of_the_file_are_those_of_each_worker(
    said: dict[str, Any], limits: list[int], tmp_path: Path
) -> None:
    values: dict[str, Any] = {"cluster": dict(said)}
    fit(values, placed("a slots=2 batch=96\nb slots=1", tmp_path, workers=3), "10.0.0.1")
    assert values["cluster"] == {"bind": "10.0.0.1", "batch_limits": limits}


@pytest.mark.parametrize("written", [{"groups": "0,1"}, {"labels": "fast,slow"}])
def test_what_the_user_says_stays(written: dict[str, str], tmp_path: Path) -> None:
    values: dict[str, Any] = {"cluster": {"device": "cpu"}, "gsp": dict(written)}
    fit(values, placed("a slots=1 gpus=3 group=x\nb slots=1 group=y", tmp_path, workers=2), "10.0.0.1")
    assert values["cluster"]["device"] == "cpu"
    assert values["gsp"] == written
