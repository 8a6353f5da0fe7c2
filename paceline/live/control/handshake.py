"""How a process joins a run: it says hello to the coordinator, and connects to the others.

    step   this process                                   the coordinator
    1      opens its transport, connects, sends Hello
    2                                                     has everybody's Hello, sends Roster (the directory)
    3      connects to those that it will send to

Of two workers the one of the higher rank calls, so that each pair makes one connection. A worker that joins later calls
everybody, since those that train already call nobody. (The proof that caller and listener belong to the run is another
handshake, `paceline.live.security.handshake`.)
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Iterable

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.errors import CoordinatorVersion, NoCoordinator, OtherVersion, PeerLost
from paceline.live.control.directory import PartyDirectory
from paceline.live.control.link_probe import LinkRounds, timed_look
from paceline.live.cpu_topology import allowed_cpus
from paceline.live.host_info import cores
from paceline.live.node.node import Node
from paceline.live.node.published_state import PRESENCE
from paceline.live.protocol.transport import Envelope, Handler, Kind, Transport

WAY_OUT = "if its run is over, start another one (`paceline launch`), which starts its workers itself"


class Handshake:
    """Joins a run, on the party's own thread. `reached` are those that this party has connected to."""

    def __init__(self, transport: Transport, node: Node, directory: PartyDirectory) -> None:
        self._transport, self._node, self._directory = transport, node, directory
        self.reached: set[Party] = set()

    def hello(
        self,
        coordinator_address: str,
        handler: Handler,
        *,
        device: str,
        speeds: tuple[float, float],
        incarnation: int,
    ) -> None:
        """Opens the transport and makes this party known to the coordinator.

        device: as the trace names it. speeds: bytes a second at which a server applies updates, measured and at most.
        Raises NoCoordinator, with the address and the way out, when the coordinator cannot be reached;
        CoordinatorVersion where it speaks another version of the protocol.
        """
        self._transport.open(handler)
        try:
            self._transport.connect(party.COORDINATOR, coordinator_address)
        except OtherVersion as error:
            raise CoordinatorVersion(str(error)) from None
        except PeerLost as error:
            raise NoCoordinator(f"{error}; {WAY_OUT}") from None
        hello = control.Hello(
            address=self._transport.address,
            pid=os.getpid(),
            host=socket.gethostname(),
            device=device,
            bytes_per_second=speeds[0],
            bytes_per_second_max=speeds[1],
            incarnation=incarnation,
            cores=cores(),
            cpus=tuple(sorted(allowed_cpus())),
        )
        self._transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, hello))

    def reach(self, other: Party) -> None:
        """Connects to one more party; those who are connected stay so."""
        directory = self._directory
        self._transport.connect(other, directory.addresses[str(other)], directory.incarnation_of(other))
        self.reached.add(other)

    def links(self, servers: int) -> list[LinkRounds | None]:
        """Returns the link from each server, None for one on this host; nothing when none is worth measuring."""
        here = self._directory.host_of(self._node.me)
        others = [self._directory.host_of(party.server(s)) != here for s in range(servers)]
        if servers < 2 or not any(others):
            return []
        looks = (functools.partial(timed_look, self._node, party.server(s)) for s in range(servers))
        return [LinkRounds(look) if other else None for look, other in zip(looks, others, strict=True)]

    def reach_all(self, servers: Iterable[Party]) -> None:
        """Connects to all workers, the evaluator and these servers; returns when all of them that live know it.

        Lost workers are not called: if a whole host is down, each call would cost a timeout.
        """
        directory = self._directory
        others = [who for who in directory.parties() if who.kind in ("worker", "evaluator")]
        there = [who for who in others if who.kind != "worker" or who.index not in directory.lost_ranks]
        for who in (*there, *servers):
            with contextlib.suppress(PeerLost):  # the coordinator will hear of it, too
                self.reach(who)
                self._node.read_state_of(who, PRESENCE)

    def meet_workers(self) -> None:
        """Connects to the workers of lower rank; those of higher rank call this one. Returns when those know.

        A newcomer calls all that are here, and the newcomers that came before it: nobody else would. It goes on without
        one that was lost just now, of which it will be told; before training such a loss is raised as PeerLost.
        """
        directory, me = self._directory, self._node.me.index
        workers = [who for who in directory.parties() if who.kind == "worker" and who.index != me]
        called = [who for who in workers if who.index < me]
        if directory.late:
            called = [w for w in workers if w.index not in directory.departed or w.index in directory.joining]
        for other in called:
            try:
                self.reach(other)
            except PeerLost:
                if not directory.late:
                    raise
        self._node.neighbours.meet([who.index for who in workers], [who.index for who in called])

    def servers(self) -> list[Party]:
        """Returns the servers that this party has connected to."""
        return [who for who in self.reached if who.kind == "server"]

    def ways(self) -> tuple[str, ...]:
        """Returns how vectors travel to those that this party has connected to, each way once."""
        return tuple(sorted({self._transport.way_to(other) for other in self.reached}))
