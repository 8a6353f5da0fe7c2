"""This transport connects processes: by a Unix stream with shared memory on one host, by TCP between hosts.

Every pair of parties shares one connection, made by whoever calls `connect`. It begins with a handshake
(`paceline.live.security.handshake`), by which both prove that they have the run's token; before that the connection may
carry nothing but short headers. Beyond the loopback address TCP streams are under TLS, and the certificate must be that
of the party which greets. Where one TCP stream does not fill the link, the caller opens further ones, each with its own
handshake.

An address names the ways to a party, such as `127.0.0.1:4711 unix:paceline-17@4c...`; a Unix stream is taken where both
sides have one, on one host.

    a stream that calls here    input                               then                                    next
    (under TLS)                 TLS handshake, own thread           the certificate's party is known        STRANGER
    STRANGER                    Greeting, then a valid Proof        an earlier incarnation is dropped       CONNECTED
    STRANGER                    the same, as a lane                 added to its connection, or kept        LANE
                                                                    until that is there
    STRANGER                    GREETING_SECONDS, or too many       closed; the log names the address       CLOSED
                                strangers
    CONNECTED                   a later incarnation greets, `drop`  closed; the handler hears `lost`        CLOSED
    CONNECTED                   end of stream, protocol error       closed; the handler hears `lost`        CLOSED

Which incarnation of a party counts is decided in `paceline.core.fault_tolerance.peer_incarnations`.
"""

from __future__ import annotations

import functools
import selectors
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from paceline.core.coordination.party import COORDINATOR, Party
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.fault_tolerance.peer_incarnations import PeerIncarnations
from paceline.core.vector import Memory
from paceline.live.addresses import check_bind, is_loopback
from paceline.live.event_loop import Loop
from paceline.live.net.accept_loop import BACKLOG, EVICTED, READ_AFTER, RETRY_SECONDS, TlsListener, accept, address_of
from paceline.live.net.caller_reads import CallerReads
from paceline.live.net.connection import Connection
from paceline.live.net.dialer import Dialer, stays_here, widen
from paceline.live.net.striping import enough_for
from paceline.live.protocol.transport import SHARED, TCP, Envelope, Handler, Kind, LossCause
from paceline.live.protocol.wakeable_event import WakeableEvent
from paceline.live.same_host import unix_socket
from paceline.live.same_host.shared_memory import Segments
from paceline.live.security.handshake import Challenge, Greeting, ListenerSide
from paceline.live.security.rejected_connections import Refusals
from paceline.live.security.tls import HANDSHAKE_SECONDS, Tls, TlsStream

STRANGERS_MAX = 256  # connections that have not said yet who they are
GREETING_SECONDS = 10.0
ANSWERS_MAX = 2  # with vectors, that a server keeps for a worker before it reads no more of what that sends


class TcpTransport:
    """Listens on `host`:`port` (0 picks a free port) and keeps one connection per known party.

    Of two parties that call each other at the same moment each keeps both streams: it sends over the one that it had
    first, and hears both.

    With `segments`, this process's, it also listens for processes of the same host and shares memory with them.
    """

    def __init__(
        self,
        me: Party,
        token: str,
        memory: Memory,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        body_bytes_max: int = 1 << 36,
        streams: int = 0,
        failed: Callable[[BaseException], None] | None = None,
        segments: Segments | None = None,
        shared_only: bool = False,
        tls: Tls | None = None,
        incarnation: int = 0,
    ) -> None:
        """`failed` is called with an exception that escaped the handler; `shared_only` rejects parties of other hosts.

        streams: over how many sockets large vectors go to a party that is called from here over TCP; 0 decides by the
        round trip, and is one on the loopback address. tls: this party's credentials, without which nothing listens
        beyond the loopback address. Raises OSError when the port is taken, ConfigError for such an address.
        """
        if not token:
            raise ValueError("without a token anybody could prove to have it")
        check_bind(host, tls is not None)
        self.me, self._token, self._memory = me, token, memory
        self._body_bytes_max, self._streams = body_bytes_max, streams
        self._listener = _listener(host, port)
        self._told_failure = failed or self._failed
        self._loop = Loop(f"net of {me}", self._told_failure, spins=me.kind == "server")
        self._caller_reads = CallerReads(self._loop)
        self._segments = segments
        self._dialer = Dialer(
            me,
            token,
            tls,
            memory,
            incarnation=incarnation,
            shares=segments is not None,
            shared_only=shared_only,
        )
        self._local = unix_socket.listen(BACKLOG) if segments else None
        self._connections: dict[Party, Connection] = {}
        self._crossed: dict[Party, Connection] = {}  # the second streams of pairs whose calls crossed
        self._dialed: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._strangers: dict[Connection, int] = {}  # the oldest first, and with which batch each came
        self._batch = 0
        self._refusals, self._closing = Refusals(str(me)), False
        self._finished: deque[tuple[TlsStream, Party]] = deque()  # handshakes, of which nothing has been read yet
        self._tls_listener = self._under(tls) if tls else None
        plain = [None if tls else self._listener, self._local]
        self._plain_listeners = [listener for listener in plain if listener]
        # Lanes that came before their connection, and of which incarnation they are.
        self._early: dict[Party, list[tuple[Connection, int]]] = {}
        self._gone = [0, 0, 0, 0]  # traffic of connections that are closed, and handshakes of lanes
        self._peers = PeerIncarnations[Party]()
        self._handler: Handler | None = None

    def _failed(self, error: BaseException) -> None:
        """Reports an exception that escaped a callback to the handler."""
        assert self._handler is not None
        self._handler.failed(error)

    @property
    def address(self) -> str:
        """Returns the ways to this party, separated by spaces: host:port, and the Unix stream if it has one."""
        host, port = self._listener.getsockname()[:2]
        ways = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
        return " ".join(ways + ([unix_socket.way_to(self._local)] if self._local else []))

    def open(self, handler: Handler) -> None:
        """Begins to deliver to `handler`, and to accept callers."""
        self._handler = handler
        self._loop.call_soon(self._listen)
        self._loop.start()
        if self._tls_listener:
            self._tls_listener.open()

    def _listen(self) -> None:
        """Begins to accept, or goes on with it after a pause."""
        for listener in self._plain_listeners:
            self._loop.watch(listener, selectors.EVENT_READ, functools.partial(self._accept, listener))

    def _under(self, tls: Tls) -> TlsListener[Party]:
        """Returns the listener that makes TLS handshakes, on a thread of its own."""
        return TlsListener(
            f"handshakes of {self.me}",
            self._listener,
            answer=tls.answer,
            identify=tls.party_of,
            done=self._shook_hands,
            refused=lambda address, why: self._loop.call_soon(partial(self._note_refusal, address, why)),
            failed=self._told_failure,
            limit=STRANGERS_MAX,
            seconds=HANDSHAKE_SECONDS,
        )

    # ---- connections -------------------------------------------------------------------------------------
    def connect(self, party: Party, address: str, incarnation: int = 0) -> None:
        """Connects to `incarnation` of a party; does nothing where it is connected already.

        The second look at what is over is needed: dialing takes seconds, and the party may be declared lost meanwhile.
        """
        if party in self._connections:
            return
        if self._peers.is_over(party, incarnation):
            raise PeerLost(f"{party} takes no part any more")
        sock = self._dialer.reach(party, address)
        if self._peers.is_over(party, incarnation):  # it was declared lost meanwhile
            sock.close()
            raise PeerLost(f"{party} takes no part any more")
        connection = self._wrap(sock, party)
        self._dialed.add(connection)
        self._peers.meets(party, incarnation)
        if self._connections.setdefault(party, connection) is not connection:  # it has called meanwhile
            self._crossed[party] = connection
            connection.begin()
            return
        connection.begin()
        if sock.family != socket.AF_UNIX:
            self._add_lanes(connection, party, address, sock)

    def _add_lanes(self, connection: Connection, party: Party, address: str, sock: socket.socket) -> None:
        """Opens further streams for large bodies, as many as fill the link; none on this machine."""
        streams = self._streams or (1 if stays_here(sock) else enough_for(sock))
        for _ in range(streams if streams > 1 else 0):
            lane = self._dialer.reach(party, address, lane=True)
            self._loop.call_soon(partial(connection.add_lane, lane, called=False))

    def _accept(self, listener: socket.socket, _events: int) -> None:
        """Takes in callers of a listener without TLS. Over a Unix stream only processes of this user are heard."""
        found, full = accept(listener)
        self._batch += 1
        for sock in found:
            if sock.family != socket.AF_UNIX:
                self._hear_out(sock)
            elif unix_socket.same_user(sock):
                self._hear_out(unix_socket.UnixStream(sock))
            else:
                sock.close()
        if full:
            self._evict("no descriptor is left")
            self._loop.unwatch(listener)
            self._loop.call_later(RETRY_SECONDS, self._listen)

    def _evict(self, why: str) -> None:
        """Closes the oldest stranger that has sent nothing, else the oldest: parties of the run greet at once."""
        greeted = {lane for lanes in self._early.values() for lane, _ in lanes}
        waiting = [stranger for stranger in self._strangers if stranger not in greeted]
        before = self._batch - READ_AFTER
        silent = (one for one in waiting if not one.bytes_received and self._strangers[one] <= before)
        for stranger in waiting[:1]:
            next(silent, stranger).close(why)

    def _shook_hands(self, stream: TlsStream, caller: Party) -> None:
        """Continues after a handshake, on the thread of the handshakes."""
        self._finished.append((stream, caller))
        self._loop.call_soon(self._take_finished)

    def _take_finished(self) -> None:
        """Hears out those whose TLS handshake is finished, on the loop's thread."""
        self._batch += 1
        while self._finished:
            self._hear_out(*self._finished.popleft())

    def _hear_out(self, sock: socket.socket, certified: Party | None = None) -> None:
        """Reads a stream until it greets, for GREETING_SECONDS; `certified`: who it must be, by its certificate."""
        if len(self._strangers) >= STRANGERS_MAX:
            self._evict(EVICTED)
        stranger = self._wrap(sock, None, certified)
        self._strangers[stranger] = self._batch
        stranger.begin()
        found = weakref.ref(stranger)  # the timer must not keep a closed connection alive

        def end() -> None:
            """Closes a caller that has not greeted in time."""
            late = found()
            if late is not None and late in self._strangers:
                late.close("it never said who it is")

        self._loop.call_later(GREETING_SECONDS, end)

    def _note_refusal(self, peer: str, why: str) -> None:
        """Logs a caller that was sent away, unless this party closes."""
        if not self._closing:
            self._refusals.note(peer, why)

    def _wrap(self, sock: socket.socket, party: Party | None, certified: Party | None = None) -> Connection:
        """Makes a connection. Its callbacks look the peer up in `known`, which a stranger enters by its greeting."""
        peer = address_of(sock)
        known: list[Party] = [party] if party else []
        listening = ListenerSide(self.me, self._token, certified)
        assert self._handler is not None, "open() comes before connect()"
        handler = self._handler

        def arrived(envelope: Envelope) -> None:
            """Delivers a message; before the peer is known, goes on with its handshake."""
            if known:
                handler.deliver(known[0], envelope)
            else:
                match listening.hear(envelope.message):
                    case Challenge() as challenge:
                        connection.send(Envelope(Kind.CONTROL, challenge))
                    case caller, Greeting() as greeting:
                        self._greeted(connection, caller, greeting)
                        known.extend([] if greeting.lane else [caller])  # a lane is no connection of its own

        def room(kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]) -> list[Any]:
            """Returns room for vectors. Raises ProtocolError while the peer is not known."""
            if not known:
                raise ProtocolError(
                    "the caller sends vectors before it has said who it is"
                )  # empty ones: the limit on its bodies is 0
            return handler.room_for(known[0], kind, id, cls, lengths, shared)

        def closed(why: str, cause: LossCause) -> None:
            """Keeps the connection's traffic, and reports a loss unless it has been replaced already."""
            if connection in self._strangers:
                del self._strangers[connection]
                self._note_refusal(peer, why)
            self._gone = list(map(sum, zip(self._gone, _traffic(connection), strict=True)))
            if known and self._crossed.get(known[0]) is connection:
                del self._crossed[known[0]]
            elif known and self._connections.get(known[0]) is connection:
                del self._connections[known[0]]
                handler.lost(known[0], why, cause)

        connection = Connection(
            sock,
            self._loop,
            self._memory,
            arrived=arrived,
            room=room,
            closed=closed,
            segments=self._segments,
        )
        if party:
            self._admit(connection, party)
        return connection

    def _admit(self, connection: Connection, party: Party) -> None:
        """Lets `party` send vectors. Only a server limits what it reads, and only of workers.

        Servers copy to one another in both directions: if both waited for the other to read, both would hang.
        """
        served = self.me.kind == "server" and party.kind == "worker"
        connection.admit(self._body_bytes_max, ANSWERS_MAX if served else 0)

    def _greeted(self, connection: Connection, party: Party, greeting: Greeting) -> None:
        """Takes in a stream of `party`, which has proved who it is: as its connection, or as a lane of that."""
        if self._peers.is_over(party, greeting.incarnation):
            raise ProtocolError(f"incarnation {greeting.incarnation} of {party} is over")
        if greeting.lane:
            self._early.setdefault(party, []).append((connection, greeting.incarnation))
        else:
            self._make_way(party, greeting.incarnation)
            self._strangers.pop(connection, None)
            self._admit(connection, party)
            if self._connections.setdefault(party, connection) is not connection:
                self._crossed[party] = connection
        if self._called_by(party):
            self._adopt(party)

    def _make_way(self, party: Party, incarnation: int) -> None:
        """Drops an earlier incarnation of `party`, whose end has not been noticed yet."""
        if self._peers.meets(party, incarnation):
            self._close(party, "it came back")
        elif party in self._connections and (self._connections[party] not in self._dialed or party in self._crossed):
            raise ProtocolError(f"{party} is connected already")  # calls of both sides may cross, once

    def _called_by(self, party: Party) -> Connection | None:
        """Returns the connection that `party` has called, to which its lanes belong; None before there is one."""
        both = (self._connections.get(party), self._crossed.get(party))
        return next((one for one in both if one is not None and one not in self._dialed), None)

    def _adopt(self, party: Party) -> None:
        """Adds the lanes that this incarnation of `party` opened before its connection, or just now."""
        found = self._called_by(party)
        assert found is not None
        for stream, incarnation in self._early.pop(party, ()):
            if stream not in self._strangers:  # it has lost patience, or was closed
                continue
            if incarnation != (here := self._peers.met(party)):
                stream.close(f"a stream of {party}, incarnation {incarnation}; incarnation {here} is here")
                continue
            del self._strangers[stream]
            self._gone[0] += stream.bytes_sent
            self._gone[1] += stream.bytes_received
            found.add_lane(stream.detach(), called=True)

    # ---- what the driver asks for ------------------------------------------------------------------------
    def send(self, to: Party, envelope: Envelope) -> None:
        """Sends a message. Raises PeerLost where there is no connection to `to`."""
        connection = self._connections.get(to) or self._connection(to)
        connection.send(envelope)

    def _connection(self, party: Party) -> Connection:
        """Returns the connection to a party. Raises PeerLost where there is none."""
        connection = self._connections.get(party)
        if connection is None:
            raise PeerLost(f"{self.me} has no connection to {party}")
        return connection

    def drop(self, party: Party, incarnation: int, why: str) -> None:
        """Closes the connection to an incarnation of a party, and refuses it and all before it from now on."""
        if self._peers.end(party, incarnation):
            self._close(party, why)

    def _close(self, party: Party, why: str) -> None:
        """Closes the connection to a party, both where calls have crossed."""
        for connection in (self._crossed.get(party), self._connections.get(party)):
            if connection:
                connection.close(why)

    def incarnation_of(self, party: Party) -> int:
        """Returns the incarnation of a party that is connected; a later one drops the connection to the one before."""
        return self._peers.met(party) or 0

    def way_to(self, party: Party) -> str:
        """Returns SHARED or TCP. Raises PeerLost where there is no connection."""
        return SHARED if self._connection(party).shares else TCP

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Calls `action` after so many seconds, on the net thread."""
        self._loop.call_later(seconds, action)

    def traffic(self) -> tuple[int, int]:
        """Returns the bytes sent and received, those that passed by reference included."""
        sent, received, lent, borrowed = self._traffic()
        return sent + lent, received + borrowed

    def traffic_with(self) -> dict[Party, tuple[int, int]]:
        """Returns the bytes sent to and received from each party, by reference too. Any thread may ask."""
        found: dict[Party, tuple[int, int]] = {}
        for party, connection in [*self._connections.items(), *self._crossed.items()]:
            sent, received, lent, borrowed = _traffic(connection)
            before = found.get(party, (0, 0))
            found[party] = before[0] + sent + lent, before[1] + received + borrowed
        return found

    def progress(self, party: Party) -> tuple[int, bool]:
        """Returns the `progress` of the connection to a party, of both if two calls crossed; (0, False) without one."""
        both = (self._connections.get(party), self._crossed.get(party))
        found = [one.progress() for one in both if one is not None]
        return sum(moved for moved, _ in found), any(busy for _, busy in found)

    def wait(self, event: WakeableEvent, whom: Sequence[Party], timeout_s: float) -> bool:
        """Waits for an event, and reads what `whom` send meanwhile, but not what the coordinator sends.

        A connection whose reader is interrupted is closed, and a party without its coordinator would end.
        """
        found: list[Connection] = []
        for who in whom:
            one = self._connections.get(who)
            if one is not None and one not in found and who != COORDINATOR:
                found.append(one)
        return self._caller_reads.wait(event, found, timeout_s)

    def shared(self) -> tuple[int, int]:
        """Returns the bytes of vectors that were lent to others, and borrowed from them."""
        _, _, lent, borrowed = self._traffic()
        return lent, borrowed

    def _traffic(self) -> list[int]:
        """Returns the bytes sent, received, lent and borrowed, of closed connections and handshakes too."""
        live = [*self._connections.values(), *self._crossed.values(), *self._strangers]
        handshakes = (self._dialer.bytes_sent, self._dialer.bytes_received, 0, 0)
        return list(map(sum, zip(self._gone, handshakes, *map(_traffic, live), strict=True)))

    def close(self) -> None:
        """Waits a second at most until what was sent has left, then closes everything.

        Who is connected is not told: nobody hears of a close that this party asked for.
        """
        deadline = time.monotonic() + 1.0
        for connection in list(self._connections.values()):
            connection.idle.wait(max(0.0, deadline - time.monotonic()))
        if self._tls_listener:
            self._tls_listener.close()
        self._loop.call_soon(self._close_all)
        self._loop.end()
        self._close_all()

    def _close_all(self) -> None:
        """Closes listeners and connections, without telling the handler."""
        self._closing = True
        for listener in self._plain_listeners:
            listener.close()
        connections = [*self._connections.values(), *self._crossed.values(), *self._strangers]
        self._connections.clear()  # nobody is told of a close that we asked for
        self._crossed.clear()
        for connection in connections:
            connection.close("closed by this side")
        while self._finished:
            self._finished.popleft()[0].close()


def _listener(host: str, port: int) -> socket.socket:
    """Returns a socket that listens. Raises OSError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    if is_loopback(host):
        widen(listener)  # accepted sockets inherit it
    return listener


def _traffic(connection: Connection) -> tuple[int, int, int, int]:
    """Returns the bytes sent and received, lent and borrowed."""
    return connection.bytes_sent, connection.bytes_received, *connection.bytes_shared
