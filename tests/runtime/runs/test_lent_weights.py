"""Weights that a server lends to workers of its host: one version at most to each, and none while it computes."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.coordination.party import Party
from paceline.engine.vectors import buffer_pool
from paceline.engine.vectors.flat import FlatMemory, Pool
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.net.zero_copy import ZeroCopy
from paceline.live.protocol.transport import Transport
from paceline.live.same_host.shared_memory import Segments
from paceline.runtime.worker.pace import Pace
from tests.launch.process_tree import within
from tests.runtime.own_loops import Sockets, run_loops, toy_data

pytestmark = pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")

WIDTH, PATIENCE_SECONDS = 200, 60.0
PIECE_BYTES = 2 << 20  # whole pages, also where those are huge
MODEL_BYTES = 4 * (6 * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + WIDTH * 2 + 2)
WAYS: dict[str, dict[str, Any]] = {
    "whole": {"slice_mb": 0.0},
    "slices": {"slice_mb": 0.085},  # still long enough to be lent
    "slices that are read as they come": {"slice_mb": 0.085, "overlap": "on"},
}


class Host(Sockets):
    """Parties that share memory; of the server's, how much each worker has on loan, and the most one had in training.

    At the end they look at the final weights, with the last answer still in their hands.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.segments, self.most, self.training = Segments(), 0, True
        self.server: TcpTransport | None = None
        self.workers: dict[int, TcpTransport] = {}
        idle = Pool()
        idle.source = self.segments.make
        monkeypatch.setattr(buffer_pool, "_HOST", idle)
        lend = ZeroCopy.lend

        def watched(sharing: ZeroCopy, v: Any) -> Any:
            place = lend(sharing, v)
            if self.training and sharing in self.loans().values():
                self.most = max(self.most, lent(sharing))
            return place

        monkeypatch.setattr(ZeroCopy, "lend", watched)

    def transport(self, me: Party, incarnation: int = 0) -> Transport:
        transport = TcpTransport(me, self.token, FlatMemory(), segments=self.segments, incarnation=incarnation)
        if me.kind == "server":
            self.server = transport
        else:
            self.workers[me.index] = transport
        return transport

    def has_delivered(self, rank: int) -> bool:
        """Waits until the thread that brought the worker its weights is done with them, long before a step is."""
        idle = threading.Event()
        self.workers[rank]._loop.call_soon(idle.set)
        return idle.wait(PATIENCE_SECONDS)

    def loans(self) -> dict[Party, ZeroCopy]:
        found = dict(self.server._connections) if self.server else {}
        return {who: of._sharing for who, of in found.items() if who.kind == "worker" and of._sharing}

    def lent_to(self, rank: int) -> int:
        return next(lent(sharing) for who, sharing in self.loans().items() if who.index == rank)


def lent(sharing: ZeroCopy) -> int:
    return sum(v.nbytes for v in list(sharing._lent.values()))


def wide_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))


def run(host: Host, out: Path, scheme: str, way: str, looked: Callable[[int], None], **parameters: Any) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(data, 8, epochs=2):
            loss = nn.functional.cross_entropy(model(x), y)
            looked(pace.rank)
            loss.backward()
            pace.step()
        host.training = False

    run_loops(out, scheme, loop, workers=2, hub=host, make_model=wide_model, cluster=WAYS[way], **parameters)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["asp", "bsp"])
def test_while_a_worker_computes_a_gradient_the_server_has_its_weights_back(
    monkeypatch: pytest.MonkeyPatch, out: Path, scheme: str, way: str
) -> None:
    host, kept = Host(monkeypatch), list[int]()

    def looked(rank: int) -> None:
        if not kept and not within(PATIENCE_SECONDS, lambda: host.lent_to(rank) == 0):
            kept.append(host.lent_to(rank))

    run(host, out, scheme, way, looked)
    assert kept == []
    assert 0.9 * MODEL_BYTES < host.most <= MODEL_BYTES, "they were lent, and never two versions of them"


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_trains_gives_them_back_before_it_gets_others(
    monkeypatch: pytest.MonkeyPatch, out: Path, way: str
) -> None:
    host, late = Host(monkeypatch), list[int]()

    def looked(rank: int) -> None:
        if not host.has_delivered(rank):
            late.append(rank)

    run(host, out, "asp", way, looked, payload="delta")
    assert late == []
    assert 0.9 * MODEL_BYTES < host.most <= MODEL_BYTES


def test_after_many_versions_at_once_only_what_the_pool_keeps_takes_memory() -> None:
    """Of versions that come and go in any order, some buffers stay in nearly every segment."""
    segments, idle, draw = Segments(), Pool(idle_bytes=8 * PIECE_BYTES), random.Random(1)
    idle.source = segments.make

    def taken() -> int:
        return sum(512 * os.fstat(segment.descriptor).st_blocks for segment in segments._segments.values())

    for _ in range(4):
        held = [idle.take(PIECE_BYTES // 4).fill_(1.0) for _ in range(64)]
        assert taken() <= 65 * PIECE_BYTES
        draw.shuffle(held)
        while held:
            held.pop()
        assert taken() <= 9 * PIECE_BYTES
