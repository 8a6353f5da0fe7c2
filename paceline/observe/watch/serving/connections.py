"""Bounds the connections to the page: few at a time, none for long without a whole request and an answer that is taken.

    accepted --first byte--> request --answered--> waiting --first byte--> request ...

    state     limit                                                     when it is exceeded
    accepted  REQUEST_SECONDS, until the answer has been taken wholly   the connection is cut
    request   the same, from its first byte                             the connection is cut
    waiting   uvicorn's own time limit                                  the connection is closed
    any       CONNECTIONS_MAX together                                  the one that waits or is silent for longest is
                                                                        cut; the oldest where all are at work

Bodies and headers are bounded by uvicorn; there are no WebSockets and no answers without an end.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX = 64
"""Connections that are open at a time."""
REQUEST_SECONDS = 30.0
"""Seconds until a request is whole, and until its answer is taken."""
HEAD_BYTES_MAX = 16 << 10  # request line and headers
BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""
ACCEPTED_MAX = 32  # in one turn of the loop: fewer than may be open, so that none is evicted before it was read
RETRY_SECONDS = 0.1
"""Seconds until the next try, when there is no descriptor left."""

_NOT_NOW = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPERM)


class Connections:
    """Holds the open connections of one server, the one whose last request was the longest ago first."""

    def __init__(self) -> None:
        self._open: dict[LimitedProtocol, None] = {}

    def enter(self, connection: LimitedProtocol) -> None:
        """Adds a connection; with CONNECTIONS_MAX open, another one is cut for it."""
        if len(self._open) >= CONNECTIONS_MAX:
            self.evict()
        self._open[connection] = None

    def used(self, connection: LimitedProtocol) -> None:
        """Notes that a connection has just had an answer."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def leave(self, connection: LimitedProtocol) -> None:
        """Forgets a connection that was closed."""
        self._open.pop(connection, None)

    def end(self) -> None:
        """Cuts all connections."""
        for connection in list(self._open):
            connection.transport.abort()

    def evict(self) -> None:
        """Cuts the connection that matters least."""
        if self._open:
            victim = next((one for one in self._open if not one.busy), next(iter(self._open)))
            self.leave(victim)
            victim.transport.abort()


class LimitedProtocol(H11Protocol):
    """Speaks HTTP over one connection, with a time limit for each request."""

    def __init__(self, connections: Connections, **more: Any) -> None:
        super().__init__(**more)
        self._connections = connections
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Returns True while a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Enters the connection, which may evict another one, and sets its alarm."""
        super().connection_made(transport)
        self._connections.enter(self)
        self._set_alarm()

    def data_received(self, data: bytes) -> None:
        """Sets the alarm with the first bytes of a request: it must be whole in time."""
        if self._alarm is None:
            self._set_alarm()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Stops the time limit, unless the kernel has not taken all of the answer yet."""
        self._connections.used(self)
        if not self.transport.get_write_buffer_size():
            self._drop_alarm()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that asks for nothing more.

        One that still has an answer to take is aborted: a plain close would wait for whoever does not read.
        """
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # a plain close would wait for whoever does not read
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._drop_alarm()
        self._connections.leave(self)
        super().connection_lost(exc)

    def _set_alarm(self) -> None:
        """Closes the connection in REQUEST_SECONDS, unless the alarm is dropped before."""
        self._alarm = self.loop.call_later(REQUEST_SECONDS, self._ring)

    def _drop_alarm(self) -> None:
        """Drops the alarm: the request is whole and answered."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        """Cuts the connection when its time is over, unless it was answered and has taken the answer."""
        self._alarm = None
        answered = self.cycle is not None and not self.busy
        if not answered or self.transport.get_write_buffer_size():
            self.transport.abort()


class Acceptor:
    """Accepts connections for a server in place of asyncio, whose own loop repeats itself when no descriptor is
    left."""

    def __init__(self, listener: socket.socket, server: uvicorn.Server) -> None:
        self._listener, self._server, self._loop = listener, server, asyncio.get_running_loop()
        self._connections = Connections()
        self._opening: set[asyncio.Task[Any]] = set()
        self._closed = False
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._watch()

    def close(self) -> None:
        """Accepts nobody any more."""
        self._closed = True
        self._loop.remove_reader(self._listener)

    async def end(self) -> None:
        """Cuts the connections that still have not taken their answer."""
        await asyncio.gather(*self._opening)
        self._connections.end()
        for _ in range(2):  # turns of the loop, in which what was aborted is closed
            await asyncio.sleep(0)

    def _watch(self) -> None:
        """Accepts again, unless the page has been closed meanwhile."""
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Accepts up to ACCEPTED_MAX connections; without a free descriptor, one is cut and accepting pauses."""
        for _ in range(ACCEPTED_MAX):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NOT_NOW:
                    self._connections.evict()
                    self._loop.remove_reader(self._listener)
                    self._loop.call_later(RETRY_SECONDS, self._watch)
                    return
                continue  # this one has gone again
            task = self._loop.create_task(self._open(sock))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._protocol, sock)
        except OSError:  # it has gone again
            sock.close()

    def _protocol(self) -> LimitedProtocol:
        """Returns the protocol of a new connection, which shares the server's state."""
        server = self._server
        return LimitedProtocol(
            self._connections,
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
        )
