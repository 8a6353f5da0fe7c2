"""Many workers call at once, over real sockets: everybody gets in, and training starts for all."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from paceline.core.collective import Choice
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import RunRules, RunSize
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.role import Role
from paceline.core.sharding import lay_out
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.planning import RunChoices
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.protocol.message_parts import MessageParts
from paceline.live.protocol.transport import Envelope, Kind
from paceline.live.security.certificate_authority import CertificateAuthority
from paceline.live.security.tls import Tls
from tests.live.fakes import NumpyMemory, Recorder, net_threads, take
from tests.live.scripted_parties import Ears, ready

TOKEN = "the token of this run"


class Joiner:
    """A worker, or the server, that does what is asked of it until training starts."""

    def __init__(self, me: Party, tls: Tls | None) -> None:
        self.me, self.heard, self.parts = me, Recorder(), MessageParts()
        self.transport = TcpTransport(me, TOKEN, NumpyMemory(), tls=tls)
        self.transport.open(self.heard)

    def join(self, address: str) -> None:
        """Raises PeerLost when it is not let in, queue.Empty when it is forgotten."""
        self.transport.connect(COORDINATOR, address)
        self._say(control.Hello(address=self.transport.address, pid=1, host="here", device="cpu"))
        assert isinstance(self._hears(), control.Roster)
        if self.me.kind == "worker":
            self._say(ready())
        assert isinstance(self._hears(), control.Plan)
        self._say(control.Prepared())
        assert isinstance(self._hears(), control.Go)

    def _say(self, message: object) -> None:
        self.transport.send(COORDINATOR, Envelope(Kind.CONTROL, message))

    def _hears(self) -> object:
        while (message := self.parts.join(self.heard.next()[1])) is None:
            pass
        return message


def gathering(workers: int, tls: Tls | None) -> tuple[Coordinator, TcpTransport, Ears]:
    ears = Ears()
    transport = TcpTransport(COORDINATOR, TOKEN, NumpyMemory(), tls=tls)
    coordinator = Coordinator(
        transport,
        Node(transport, NumpyMemory()),
        ears,
        RunSize(workers, servers=1),
        RunChoices(
            make_role=lambda plan, place: Role(None, place),
            lay_out=lambda ready, hellos: (lay_out(ready[0].length, len(hellos)), ""),
            choose_allreduce=lambda ready, hellos, servers: Choice("servers", ""),
        ),
        RunRules(dead_after_s=30.0),
    )
    return coordinator, transport, ears


@pytest.mark.parametrize(("workers", "secured"), [(200, False), (40, True)])
def test_hundreds_of_workers_that_call_at_once_all_get_in_and_train(
    tmp_path: Path, workers: int, secured: bool
) -> None:
    everybody = [server(0), *map(worker, range(workers))]
    credentials = tmp_path / "credentials"
    if secured:
        CertificateAuthority().write(credentials, [COORDINATOR, *everybody])
    tls = {who: Tls(credentials, who) if secured else None for who in [COORDINATOR, *everybody]}
    coordinator, transport, ears = gathering(workers, tls[COORDINATOR])
    address = coordinator.open()
    joiners = [Joiner(who, tls[who]) for who in everybody]
    together = threading.Barrier(len(joiners))
    went_wrong: list[str] = []

    def incarnation(joiner: Joiner) -> None:
        together.wait()
        try:
            joiner.join(address)
        except BaseException as error:
            went_wrong.append(f"{joiner.me}: {type(error).__name__}: {error}")

    incarnations = [threading.Thread(target=incarnation, args=(joiner,)) for joiner in joiners]
    for one in incarnations:
        one.start()
    for one in incarnations:
        one.join()
    try:
        assert went_wrong == []
        plan = next(value for kind, value in iter(lambda: take(ears.told), None) if kind == "started")
        assert (plan.workers, coordinator.missing()) == (workers, [])
        assert all(joiner.heard.losses.empty() for joiner in joiners)
    finally:
        for joiner in joiners:
            joiner.transport.close()
        transport.close()
    assert net_threads() == []
