"""Proxies between parties, which simulate network partitions and slow links of a real run.

Each ordered pair of parties has a proxy of its own on the loopback address; the caller is told the proxy's address in
the roster instead of the other party's. While a party is cut off its proxies hold what they have and read no more. So
no connection is closed, as in a partition, and when the link is free again all bytes arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, cast

import msgspec

from paceline.core.coordination import party
from paceline.core.coordination.control_messages import Roster, WorkerJoined
from paceline.core.coordination.party import Party
from paceline.live.protocol.transport import Envelope, Transport

LOOPBACK = "127.0.0.1"
PIECE_BYTES = 1 << 18
"""Bytes that are read at once from a link of full speed."""
THIN_BYTES = 1 << 13  # over a thin link, which several streams take in turns, and which keeps no more

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OPEN_SECONDS = 10.0
"""Seconds to wait for what the thread of the proxies is asked to do, such as opening a listener."""
ACCEPTING_TURNS = 8  # of the loop; asyncio takes four from a socket that is accepted to the first step of its task


@dataclasses.dataclass(frozen=True, slots=True)
class Proxy:
    """Holds one proxy: it listens at `address` and forwards to `onwards`."""

    onwards: str
    address: str
    server: asyncio.Server


class ProxySet:
    """Runs the proxies of one run. One asyncio thread of its own moves all bytes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._cut: set[Party] = set()
        self._thin: dict[Party, tuple[asyncio.Lock, float]] = {}  # who passes one piece at a time, and seconds a byte
        self._free = asyncio.Condition()
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        self._ways: dict[tuple[Party, Party], Proxy] = {}  # from a caller to whom it calls
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()

    def way(self, caller: Party, to: Party, address: str) -> str:
        """Returns the address at which `caller` reaches `to` through a proxy; only addresses of TCP are used."""
        address = address.partition(" ")[0]
        way = self._ways.get((caller, to))
        if way is None or way.onwards != address:
            self._ways[caller, to] = way = self._wait_for(self._open(caller, to, address))
        return way.address

    def cut_off(self, whom: Party) -> None:
        """Holds from now on all that `whom` sends and receives. It takes effect at once, without a wait."""
        self._loop.call_soon_threadsafe(self._cut.add, whom)

    def make_thin(self, whom: Party, bytes_per_second: float) -> None:
        """From now on all that `whom` says and hears shares one link of that speed."""
        self._wait_for(self._make_thin(whom, 1 / bytes_per_second))

    def let_through(self, whom: Party) -> None:
        """Forwards again what `whom` sends and receives, beginning with what was held."""
        self._wait_for(self._let_through(whom))

    def close(self) -> None:
        """Ends every connection."""
        self._wait_for(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(OPEN_SECONDS)
        self._loop.close()

    def _wait_for(self, act: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on the thread of the proxies; returns its result, or raises its error."""
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(OPEN_SECONDS)

    # ---- on the thread of the relays ---------------------------------------------------------------------
    async def _open(self, caller: Party, to: Party, address: str) -> Proxy:
        """Opens the proxy of a pair, in place of one to an earlier incarnation, which nobody is to call any more."""

        async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._join({caller, to}, reader, writer, address)

        if before := self._ways.get((caller, to)):
            await self._shut(before.server)
        thin = bool({caller, to} & self._thin.keys())
        listener = socket.create_server((LOOPBACK, 0))
        if thin:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, THIN_BYTES)
        server = await asyncio.start_server(called, sock=listener, limit=THIN_BYTES if thin else PIECE_BYTES)
        return Proxy(address, f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}", server)

    async def _shut(self, server: asyncio.Server) -> None:
        """Closes a listener, after those who were accepted have a task.

        asyncio loses connections that it accepts while their server is being closed.
        """
        for sock in server.sockets:
            self._loop.remove_reader(sock)
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        server.close()

    async def _join(
        self, ends: set[Party], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> None:
        """Connects an accepted caller with whom it calls, and forwards both directions until both have ended.

        Where nobody listens, the caller's connection is closed, as it would be without a proxy. While the pair is cut
        the connection onwards is not even opened.
        """
        host, _, port = address.rpartition(":")
        self._transports.add(writer.transport)
        try:
            await self._passable(ends)
            onwards = await self._onwards(ends, host.strip("[]"), int(port))
            self._transports.add(onwards[1].transport)
            await asyncio.gather(self._carry(ends, reader, onwards[1]), self._carry(ends, onwards[0], writer))
        except OSError:  # nobody is there
            writer.close()

    async def _onwards(self, ends: set[Party], host: str, port: int) -> Streams:
        """Opens the connection to the other party; over a thin link with buffers that hold little.

        The kernel's usual buffers take megabytes, which would arrive at once however slow the link is.
        """
        if not ends & self._thin.keys():
            return await asyncio.open_connection(host, port)
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, THIN_BYTES)
        try:
            await self._loop.sock_connect(sock, (host, port))
        except BaseException:
            sock.close()
            raise
        return await asyncio.open_connection(sock=sock, limit=THIN_BYTES)

    async def _carry(self, ends: set[Party], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one direction. Bytes, and the end of the stream, are held while the link is cut."""
        with contextlib.suppress(OSError):
            while data := await reader.read(THIN_BYTES if ends & self._thin.keys() else PIECE_BYTES):
                await self._passable(ends)
                for party in ends & self._thin.keys():
                    link, seconds_per_byte = self._thin[party]
                    async with link:
                        await asyncio.sleep(len(data) * seconds_per_byte)
                writer.write(data)
                await writer.drain()
        await self._passable(ends)
        writer.close()

    async def _passable(self, ends: set[Party]) -> None:
        """Waits until neither of these parties is cut off."""
        async with self._free:
            await self._free.wait_for(lambda: not ends & self._cut)

    async def _make_thin(self, whom: Party, seconds_per_byte: float) -> None:
        self._thin[whom] = asyncio.Lock(), seconds_per_byte

    async def _let_through(self, whom: Party) -> None:
        async with self._free:
            self._cut.discard(whom)
            self._free.notify_all()

    async def _close(self) -> None:
        """Ends all connections and waits until their tasks have ended, or asyncio would warn of each."""
        for way in self._ways.values():
            await self._shut(way.server)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for transport in list(self._transports):  # those that are closing, too: what they still have, nobody waits for
            transport.abort()
        for _ in range(2):  # in which what was aborted is closed
            await asyncio.sleep(0)


class ProxiedTransport:
    """Is the coordinator's transport, which gives parties the addresses of proxies instead of each other's.

    Everything but `send` is the transport's own.
    """

    def __init__(self, transport: Transport, relays: ProxySet) -> None:
        self._transport, self._relays, self.me = transport, relays, transport.me

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def send(self, to: Party, envelope: Envelope) -> None:
        """Sends a message. In a roster, and in the news of a worker that joined, addresses are replaced."""
        match envelope.message:
            case Roster(addresses=addresses) as roster:
                ways = {name: self._relays.way(to, Party.parse(name), where) for name, where in addresses.items()}
                envelope = msgspec.structs.replace(envelope, message=dataclasses.replace(roster, addresses=ways))
            case WorkerJoined(rank=rank, address=address) as came:
                way = self._relays.way(to, party.worker(rank), address)
                envelope = msgspec.structs.replace(envelope, message=dataclasses.replace(came, address=way))
        self._transport.send(to, envelope)


def proxied(transport: Transport, relays: ProxySet) -> Transport:
    """Returns `transport` with proxies between the parties."""
    return cast(Transport, ProxiedTransport(transport, relays))
