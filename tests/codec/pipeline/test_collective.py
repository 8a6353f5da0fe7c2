"""Means that workers carry themselves, encoded: every codec over every carrier among them, on a hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.codec import encoders, read
from paceline.codec.pipeline.collective import AS_IT_IS, SHARES, SUMS, MeanCoder
from paceline.core.collective import PEERS
from paceline.core.coordination.party import worker
from paceline.core.effects import EVERY_BIT, Mean
from paceline.core.message import nature_of
from paceline.live.collectives.peer_backend import PeerCarrier
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from tests.live.collectives.three_workers import NumpyAdder
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory
from tests.live.node_fixture import Behind

N = 100
ALL = (0, 1, 2)
USUAL = {
    "2bit": "2bit(threshold=1.0)",
    "topk": "topk(ratio=0.1)",
    "randomk": "randomk(ratio=0.1)",
    "dgc": "dgc(ratio=0.1)",
    "sparse2bit": "sparse2bit(ratio=0.1)",
}
Workers = Callable[[str], list[PeerCarrier]]


def coder(codec: str, **more: Any) -> MeanCoder:
    found = read(codec)
    assert found is not None
    return MeanCoder(NumpyMemory(), nature_of, found, length=N, **more)


def numbers(seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).integers(-64, 65, N) / 8).astype(np.float32)


@pytest.fixture
def workers() -> Iterator[Workers]:
    ends: list[Callable[[], None]] = []

    def start(codec: str) -> list[PeerCarrier]:
        hub, found = Hub(), []
        coder(codec).codec.warm_up()  # what is compiled meanwhile counts as waiting
        for rank in ALL:
            transport = hub.transport(worker(rank))
            node = Node(transport, NumpyMemory(), timeout_s=PATIENCE_SECONDS)
            node.peers = PeerCarrier(transport, NumpyMemory(), NumpyAdder(), coder=coder(codec), strip_bytes=128)
            transport.open(Behind(node))
            found.append(node.peers)
            ends.extend((node.peers.close, transport.close))
        return found

    yield start
    for end in ends:
        end()


def averaged(carriers: list[PeerCarrier], by: str, vectors: list[Any], tag: str = "m", series: int = 0) -> list[Any]:
    hosts = ((0, 2), (1,)) if by == "hierarchical" else ()
    effects = [Mean(v, ALL, tag, float(rank + 1), series) for rank, v in enumerate(vectors)]
    tickets = [carrier.begin(effect, by, hosts) for carrier, effect in zip(carriers, effects, strict=True)]
    return [ticket.wait(PATIENCE_SECONDS) for ticket in tickets]


@pytest.mark.parametrize("by", PEERS)
@pytest.mark.parametrize("codec", encoders())
def test_every_codec_goes_over_every_carrier_and_all_workers_end_with_the_same_bits(
    workers: Workers, codec: str, by: str
) -> None:
    carriers = workers(USUAL.get(codec, codec))
    reference = [coder(USUAL.get(codec, codec)) for _ in ALL]
    for turn in range(3):
        vectors = [numbers(10 * turn + rank) for rank in ALL]
        results = averaged(carriers, by, vectors, f"{turn}")
        assert len({result.v.tobytes() for result in results}) == 1
        assert [result.weight for result in results] == [6.0] * 3
        decoded = [one.rounded(v) for one, v in zip(reference, vectors, strict=True)]
        wanted = (decoded[0] + 2 * decoded[1] + 3 * decoded[2]) / 6
        lost = 0.05 if reference[0].codec.adds_up else 1e-5  # rounded once more for each hop
        np.testing.assert_allclose(results[0].v, wanted, rtol=lost, atol=lost)


@pytest.mark.parametrize("codec", ["2bit(threshold=1.0)", "1bit", "topk(ratio=0.1)", "randomk(ratio=0.1)"])
def test_what_is_left_out_of_a_mean_stays_with_the_worker_that_left_it_out(workers: Workers, codec: str) -> None:
    """One worker counts, so that the mean is what was decoded of its vectors, to the last bit."""
    carriers, total, arrived = workers(codec), np.zeros(N), np.zeros(N)
    for turn in range(10):
        total += numbers(turn)
        effects = [Mean(numbers(turn), ALL, f"{turn}", float(rank == 1)) for rank in ALL]
        tickets = [carrier.begin(effect, "ring") for carrier, effect in zip(carriers, effects, strict=True)]
        arrived += tickets[0].wait(PATIENCE_SECONDS).v
        for ticket in tickets[1:]:
            ticket.wait(PATIENCE_SECONDS)
    mine, idle = carriers[1]._coder, carriers[0]._coder
    assert mine is not None
    assert idle is not None
    (row,) = mine._stage._rows.values()
    assert row.residual is not None
    assert (arrived + row.residual.left).tolist() == total.tolist()
    assert not idle._stage._rows  # weight zero: nothing is sent, and nothing is held back


@pytest.mark.parametrize("codec", ["bf16", "topk"])
def test_means_of_which_every_bit_counts_and_short_ones_are_exact(workers: Workers, codec: str) -> None:
    vectors = [numbers(rank) / 3 for rank in ALL]
    plain = averaged(workers(codec), "ring", vectors, series=EVERY_BIT)
    np.testing.assert_allclose(plain[0].v, (vectors[0] + 2 * vectors[1] + 3 * vectors[2]) / 6, rtol=1e-5, atol=1e-6)
    mean = Mean(numbers(1), ALL, "m")
    assert coder(codec, exact_below=N + 1).coding(mean) == AS_IT_IS
    assert coder(codec).coding(mean) == (SUMS if codec == "bf16" else SHARES)


def test_small_tensors_are_exact_and_numbers_that_are_not_finite_reach_all(workers: Workers) -> None:
    part = slice(3, 6)
    one = coder("topk(ratio=0.01)", small=(part,))
    assert one.rounded(numbers(1))[part].tolist() == numbers(1)[part].tolist()
    vectors = [numbers(rank) for rank in ALL]
    vectors[2][7] = np.nan
    results = averaged(workers("sign"), "butterfly", vectors)
    assert [bool(np.isnan(result.v[7])) for result in results] == [True] * 3


def test_a_worker_that_left_passes_on_what_others_share(workers: Workers) -> None:
    for codec in ("sign", "fp16"):
        carriers = workers(codec)
        carriers[1].leave([0, 2])
        effects = [(rank, Mean(np.full(N, rank + 1.0, np.float32), ALL, "m")) for rank in (0, 2)]
        tickets = [carriers[rank].begin(effect, "ring") for rank, effect in effects]
        results = [ticket.wait(PATIENCE_SECONDS) for ticket in tickets]
        assert [(set(result.v.tolist()), result.weight) for result in results] == [({2.0}, 2.0)] * 2
