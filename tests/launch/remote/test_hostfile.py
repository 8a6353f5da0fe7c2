"""The hosts file and who goes where: pure."""

from __future__ import annotations

import pytest

from paceline.core.errors import ConfigError
from paceline.launch.remote.hostfile import HostEntry, parse_hosts, slots_of


def test_a_line_says_where_a_host_is_and_what_it_is_good_for() -> None:
    text = """
    # the fast ones
    gpu1 slots=2 gpus=0,1 batch=96 group=a speed=1.5   # two cards
    gpu2:2222 user=ada python=/opt/p/bin/python role=worker
    [fd00::7]:22 address=10.0.0.7 folder=~/work
    fd00::8
    """
    assert parse_hosts(text) == (
        HostEntry(name="gpu1", slots=2, gpus=(0, 1), batch=96, group="a", speed=1.5),
        HostEntry(name="gpu2", port=2222, user="ada", python="/opt/p/bin/python", role="worker"),
        HostEntry(name="fd00::7", port=22, address="10.0.0.7", folder="~/work"),
        HostEntry(name="fd00::8"),
    )
    assert str(parse_hosts(text)[2]) == "[fd00::7]:22"


def test_a_node_is_one_worker_of_all_its_gpus() -> None:
    (host,) = parse_hosts("gpu3 gpus=0-2,5 worker=node")
    assert host == HostEntry(name="gpu3", gpus=(0, 1, 2, 5), worker="node")
    assert slots_of((host,)) == 1


def test_a_repeated_bare_line_is_one_more_worker_as_in_mxnet() -> None:
    hosts = parse_hosts("10.0.0.1\n10.0.0.2\n10.0.0.1\n10.0.0.1\n")
    assert hosts == (HostEntry(name="10.0.0.1", slots=3), HostEntry(name="10.0.0.2"))
    assert slots_of(hosts) == 4


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "names no host"),
        ("# nobody\n", "names no host"),
        ("a\nb slots=0", "line 2: slots=0: a whole number"),
        ("a batch=x", "line 1: batch=x: a whole number"),
        ("a slot=2", "line 1: unknown 'slot=2'; did you mean 'slots'"),
        ("a two", "write settings as key=value"),
        ("a gpus=0;1", "gpus=0;1: numbers of GPUs"),
        ("a gpus=0,1 worker=gpu", "worker=gpu: node, or leave it out"),
        ("a worker=node", "write gpus=0-3 worker=node, without slots"),
        ("a slots=2 gpus=0-3 worker=node", "write gpus=0-3 worker=node, without slots"),
        ("a role=boss", "role=boss: both or worker or server"),
        ("a speed=fast", "speed=fast: a number above 0"),
        ("a address=b", "address=b: an IPv4 or IPv6 address"),
        ("a slots=1 slots=2", "slots is given twice"),
        ("a slots=1\na slots=1", "line 2: a stands in line 1 already"),
        ("a:99999", "port 99999"),
        ("-oProxyCommand=x", "is no"),
        ("a;reboot", "is no name"),
        ("a python=$(reboot)", "one word"),
        ("a::b::c", "is no host"),
    ],
)
def test_a_wrong_line_is_named_with_the_way_out(text: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_hosts(text, "my-hosts")
    assert "my-hosts" in str(caught.value)
    assert wanted in str(caught.value)
