import pytest

from paceline.core.errors import ConfigError
from paceline.sim.cluster.model import Cluster, Device, Host, Link, uniform
from paceline.sim.cluster.model import NetworkSpec as Speeds
from paceline.sim.cluster.network import Network, Nic


def network(latency_s: float = 0.5, bandwidth_gbps: float = 8.0, **more: float) -> Network:
    """1 GB takes a second."""
    speeds = Speeds(latency_s=latency_s, bandwidth_gbps=bandwidth_gbps, **more)
    return Network(Cluster(hosts=(Host(devices=(Device(),)),), network=speeds))


def cards(of: Network, count: int, **host: float) -> list[Nic]:
    return [of.nic(Host(name=str(n), devices=(Device(),), **host), str(n)) for n in range(count)]  # type: ignore[arg-type]


GB = 10**9


def test_a_message_takes_its_latency_and_its_bytes() -> None:
    net = network()
    a, b, c = cards(net, 3)
    assert net.arrival(1.0, a, b, 2 * GB) == pytest.approx(1.0 + 2.0 + 0.5)
    assert net.arrival(1.0, c, a, 0) == 1.5


def test_a_card_sends_one_message_after_the_other() -> None:
    net = network()
    src, *others = cards(net, 4)
    assert [net.arrival(0.0, src, dst, GB) for dst in others] == pytest.approx([1.5, 2.5, 3.5])


def test_a_card_takes_in_one_message_after_the_other() -> None:
    net = network()
    dst, *others = cards(net, 4)
    assert [net.arrival(0.0, src, dst, GB) for src in others] == pytest.approx([1.5, 2.5, 3.5])


def test_incast_makes_those_that_queue_take_longer() -> None:
    net = network(incast=0.5)
    dst, *others = cards(net, 4)
    assert [net.arrival(0.0, src, dst, GB) for src in others] == pytest.approx([1.5, 3.0, 4.5])


def test_a_message_never_overtakes_another_on_its_way() -> None:
    net = network(0.1, 1.0, incast=0.3)
    src, dst = cards(net, 2)
    arrivals = [net.arrival(0.01 * n, src, dst, (n * 7919) % 10**8) for n in range(50)]
    assert arrivals == sorted(arrivals)


def test_the_slower_of_two_cards_sets_the_pace() -> None:
    net = network()
    fast, slow = cards(net, 1)[0], cards(net, 1, bandwidth_gbps=2.0, latency_s=0.25)[0]
    assert net.arrival(0.0, fast, slow, GB) == pytest.approx(4.0 + 0.75)
    assert net.arrival(10.0, slow, fast, GB) == pytest.approx(14.0 + 0.75)


def test_those_on_one_host_do_not_use_its_card() -> None:
    net = network(local_latency_s=0.01, local_bandwidth_gbps=80.0)
    (nic,) = cards(net, 1)
    assert net.arrival(0.0, nic, nic, GB) == pytest.approx(0.11)
    assert nic.sending_until == nic.receiving_until == 0.0


def two_sites() -> tuple[Network, Nic, Nic, Nic]:
    near, far = Host(name="a", site="A", devices=(Device(),)), Host(name="b", site="B", devices=(Device(),))
    link = Link(between=("A", "B"), latency_s=1.0, bandwidth_gbps=0.8)
    net = Network(Cluster(hosts=(near, far), links=(link,), network=Speeds(latency_s=0.5, bandwidth_gbps=8.0)))
    return net, net.nic(near, "a"), net.nic(near, "a2"), net.nic(far, "b")


def test_a_link_between_sites_is_shared_by_all_that_goes_the_same_way() -> None:
    net, a, a2, b = two_sites()
    assert net.arrival(0.0, a, b, GB) == pytest.approx(10.0 + 1.5)
    assert net.arrival(0.0, a2, b, GB) == pytest.approx(20.0 + 1.5)
    assert net.arrival(0.0, b, a, GB) == pytest.approx(10.0 + 1.5), "the way back is free"
    assert net.arrival(0.0, a2, a, 0) == pytest.approx(1.5), "what comes over the slow link holds nobody up for long"


def test_nothing_passes_between_sites_that_are_cut_off() -> None:
    net, a, a2, b = two_sites()
    net.cut(frozenset({"B"}), until=100.0)
    assert net.arrival(0.0, a, b, 0) == pytest.approx(101.5)
    assert net.arrival(0.0, a, a2, 0) == pytest.approx(0.5)


@pytest.mark.parametrize(("latency_s", "bandwidth_gbps"), [(-1.0, 1.0), (float("nan"), 1.0), (0.0, 0.0), (0.0, -1.0)])
def test_what_is_no_speed_is_refused(latency_s: float, bandwidth_gbps: float) -> None:
    with pytest.raises(ConfigError, match="no network has a latency of"):
        uniform(2, latency_s=latency_s, bandwidth_gbps=bandwidth_gbps)
