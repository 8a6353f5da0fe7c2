"""torch.distributed meets at the coordinator: over real connections, and nothing else listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.effects import Mean
from paceline.core.errors import PeerLost, TimedOut
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent, make_supervisor
from paceline.live.collectives.store import Get, Rendezvous
from paceline.live.control import permissions
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, LossCause
from paceline.runtime.collectives.torch_distributed import CollectiveCarrier
from paceline.runtime.collectives.torch_store import RunStore
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for

TOKEN = "the token of this run"
ADDRESS = "127.0.0.7"  # of the interface that is asked for, and not the one that everything else here has


class Ears:
    """A party whose messages are its node's affair."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def deliver(self, src: Party, envelope: Envelope) -> None:
        self.node.deliver(src, envelope)

    def room_for(self, *_: Any) -> list[Any]:
        return []

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        self.node.lost(src, why)

    def failed(self, error: BaseException) -> None:
        self.node.stop(error)


class Desk(Ears):
    """What of a coordinator takes part in this."""

    def __init__(self, node: Node, rendezvous: Rendezvous) -> None:
        super().__init__(node)
        self.rendezvous = rendezvous

    def deliver(self, src: Party, envelope: Envelope) -> None:
        permissions.check_class(src, COORDINATOR, envelope.kind, type(envelope.message))
        self.rendezvous.deliver(src, envelope)

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        self.rendezvous.lost(src, why)


Join = Callable[..., tuple[TcpTransport, Node]]


@pytest.fixture
def join() -> Iterator[Join]:
    """Makes a party that is connected to a coordinator."""
    desk = TcpTransport(COORDINATOR, TOKEN, FlatMemory())
    rendezvous = Rendezvous(
        desk, [worker(0), worker(1)], lambda seconds: desk.call_later(seconds, lambda: rendezvous.tick())
    )
    rendezvous.hosts.update({worker(0): "heron", worker(1): "ibis"})
    desk.open(Desk(Node(desk, FlatMemory()), rendezvous))
    made = [desk]

    def make(me: Party, token: str = TOKEN) -> tuple[TcpTransport, Node]:
        transport = TcpTransport(me, token, FlatMemory())
        node = Node(transport, FlatMemory())
        made.append(transport)
        transport.open(Ears(node))
        transport.connect(COORDINATOR, desk.address)
        return transport, node

    yield make
    for transport in reversed(made):
        transport.close()


def listening() -> set[str]:
    """Addresses, with their ports, on which this process does."""
    own = {
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{fd}").exists()
    }
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == "0A" and f"socket:[{rest[5]}]" in own:
            address, _, port = local.partition(":")
            found.add(f"{socket.inet_ntoa(bytes.fromhex(address)[::-1])}:{int(port, 16)}")
    return found


def together(incarnations: Sequence[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(incarnations)) as pool:
        return [future.result(60.0) for future in [pool.submit(incarnation) for incarnation in incarnations]]


def carrier(rank: int, node: Node, timeout_s: float = 20.0, bind: str = ADDRESS) -> CollectiveCarrier:
    store, device = RunStore(node, timeout_s), torch.device("cpu")
    return CollectiveCarrier("gloo", rank, 2, store=store, bind=bind, device=device, timeout_s=timeout_s)


def test_two_workers_average_and_only_gloo_listens_besides_on_the_address_asked_for(join: Join) -> None:
    nodes = [join(worker(rank))[1] for rank in range(2)]
    before = listening()
    carriers = together([lambda rank=rank: carrier(rank, nodes[rank]) for rank in range(2)])
    try:
        assert {address.partition(":")[0] for address in listening() - before} <= {ADDRESS}

        def mean(rank: int) -> list[float]:
            v = Flat.copy_of(torch.tensor([1.0, 2.0]) * (1 + 2 * rank))
            values: list[float] = carriers[rank].begin(Mean(v, (0, 1), "x")).wait(20.0).v.value().tolist()
            return values

        assert together([lambda rank=rank: mean(rank) for rank in range(2)]) == [[2.0, 4.0]] * 2
    finally:
        for made in carriers:
            made.close()


def test_the_store_is_one_as_torch_has_it(join: Join) -> None:
    one, other = (RunStore(join(worker(rank))[1], 20.0) for rank in range(2))
    one.set("key", "value")
    assert [other.get("key"), other.check(["key"]), other.check(["key", "none"])] == [b"value", True, False]
    assert [one.add("n", 2), other.add("n", 3)] == [2, 5]
    tried = [("x", "y"), ("", "y"), ("x", "z"), ("y", "z")]
    assert [one.compare_set("c", *pair) for pair in tried] == [b"x", b"y", b"y", b"z"]
    assert [other.delete_key("c"), other.delete_key("c")] == [True, False]
    other.wait(["key", "n"])


def test_a_lost_worker_ends_the_others_wait_naming_it_and_its_host(join: Join) -> None:
    (_, waits), (transport, _) = (join(worker(rank)) for rank in range(2))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(carrier, 0, waits)
        RunStore(waits, 20.0).wait(["0/0"])  # it has said where it is, and waits for the other now
        transport.close()
        with pytest.raises(PeerLost, match="^lost worker 1 on ibis: "):
            waiting.result(20.0)


def test_a_worker_that_does_not_come_is_named_when_time_is_up(join: Join) -> None:
    _, node = join(worker(0))
    with pytest.raises(TimedOut, match="^waited 1 s for worker 1 on ibis to meet for torch.distributed$"):
        carrier(0, node, timeout_s=1.0)


def test_an_address_that_is_not_of_this_machine_is_named(join: Join) -> None:
    with pytest.raises(PeerLost, match="gloo on 192.0.2.1 .*--allreduce ring"):
        carrier(0, join(worker(0))[1], bind="192.0.2.1")


def test_nobody_but_workers_of_this_run_reads_it(join: Join) -> None:
    _, node = join(worker(0))
    RunStore(node, 20.0).set("key", b"value")
    with pytest.raises(PeerLost, match="does not have the token of this run"):
        join(worker(1), "another token")
    _, other = join(server(0))
    with pytest.raises(PeerLost):
        other.ask(COORDINATOR, 0, Get(key="key"), "the key").wait(20.0)
    assert RunStore(node, 20.0).get("key") == b"value", "and those it is for go on"


def test_a_run_under_tls_says_that_gloo_is_not(host: LocalHost, out: Path) -> None:
    pytest.importorskip("cryptography", reason="`make` installs what a run's authority needs")
    header: list[str] = []

    class Heading(Silent):
        def begin(self, lines: Sequence[str]) -> None:
            header.extend(lines)

    config = config_for(out, steps=2, servers=0, workers=2, cluster={"allreduce": "gloo", "tls": "on"})
    make_supervisor(config, host.launcher(), Heading()).run()
    assert [line.partition("; but ")[2] for line in header if line.startswith("security: TLS")] == [
        "not for means: gloo sends them in the clear, --allreduce ring would not"
    ]


def test_processes_meet_at_the_coordinator(processes: Runner, out: Path) -> None:
    summary = processes(config_for(out, steps=10, servers=0, workers=2, cluster={"allreduce": "gloo"}))
    assert [worker.steps for worker in summary.workers] == [10, 10]
