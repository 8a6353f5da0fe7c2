import pytest

from paceline.sim.heap import Heap
from paceline.sim.network import Card, Network


def test_events_come_in_the_order_of_their_times_and_then_of_their_making() -> None:
    heap, seen = Heap(), []
    for at, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")):
        heap.push(at, seen.append, name)
    while event := heap.pop(until=2.0):
        _, _, act, args = event
        act(*args)
    assert seen == ["a", "b", "c"]
    assert len(heap) == 1


def test_a_message_takes_its_latency_and_its_bytes() -> None:
    network = Network(latency_s=0.5, bandwidth_gbps=8.0)
    assert network.arrival(1.0, Card(), Card(), 2 * 10**9) == pytest.approx(1.0 + 2.0 + 0.5)
    assert network.arrival(1.0, Card(), Card(), 0) == 1.5


def test_a_card_sends_one_message_after_the_other() -> None:
    network, src = Network(latency_s=0.5, bandwidth_gbps=8.0), Card()
    assert [network.arrival(0.0, src, Card(), 10**9) for _ in range(3)] == pytest.approx([1.5, 2.5, 3.5])


def test_a_card_takes_in_one_message_after_the_other() -> None:
    network, dst = Network(latency_s=0.5, bandwidth_gbps=8.0), Card()
    assert [network.arrival(0.0, Card(), dst, 10**9) for _ in range(3)] == pytest.approx([1.5, 2.5, 3.5])


def test_a_message_never_overtakes_another_on_its_way() -> None:
    network, src, dst = Network(latency_s=0.1, bandwidth_gbps=1.0), Card(), Card()
    arrivals = [network.arrival(0.01 * n, src, dst, (n * 7919) % 10**8) for n in range(50)]
    assert arrivals == sorted(arrivals)


def test_a_ring_moves_the_vector_twice_less_a_share() -> None:
    network = Network(latency_s=0.5, bandwidth_gbps=8.0)
    assert network.ring_seconds(4, 4 * 10**9) == pytest.approx(6 * (0.5 + 1.0))
    assert network.ring_seconds(1, 4 * 10**9) == 0.0


@pytest.mark.parametrize(("latency_s", "bandwidth_gbps"), [(-1.0, 1.0), (float("nan"), 1.0), (0.0, 0.0), (0.0, -1.0)])
def test_what_is_no_speed_is_refused(latency_s: float, bandwidth_gbps: float) -> None:
    with pytest.raises(ValueError, match="no network has a latency of"):
        Network(latency_s, bandwidth_gbps)
