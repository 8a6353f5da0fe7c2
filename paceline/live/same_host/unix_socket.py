"""Stream sockets between processes of one host, over which memory is passed on as descriptors.

A listener has an abstract name: nothing in the file system, nothing to clean up. Only processes of the same user are
let in, as the kernel knows it; whether they belong to the run the greeting tells, as over TCP.
"""

from __future__ import annotations

import array
import os
import secrets
import socket
import struct
from collections import deque
from collections.abc import Iterable
from typing import Any

from paceline.core.errors import ProtocolError
from paceline.live.host_info import boot_id
from paceline.live.same_host.file_mapping import keeps_its_length, map_shared

BUFFER_BYTES = 4 << 20
"""Bytes of the kernel's buffers; the default is some 200 kB."""
UNCLAIMED_MAX = 128  # descriptors that came and that no message has spoken of yet
_ANCILLARY_BYTES = socket.CMSG_SPACE(UNCLAIMED_MAX * 4)
_CLOEXEC, _CUT = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0)), int(socket.MSG_CTRUNC)  # an enum's `&` takes 1 us
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def way_to(listener: socket.socket) -> str:
    """Returns the address under which processes of this host reach `listener`, with the host's boot id in it.

    By the boot id a process of another host, which may have a listener of the same name, sees that it is not meant.
    """
    return f"unix:{listener.getsockname()[1:].decode()}@{boot_id()}"


def name_in(address: str) -> str:
    """Returns the name of the listener on this host that is among the ways in `address`; "" where there is none."""
    for way in address.split():
        name, _, host = way.removeprefix("unix:").partition("@")
        if way.startswith("unix:") and host and host == boot_id():
            return name
    return ""


class UnixStream(socket.socket):
    """Is a stream that takes descriptors along: those passed on leave with the next bytes, those that came wait
    here.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Takes `sock` over."""
        timeout_s = sock.gettimeout()
        super().__init__(fileno=sock.detach())
        self.settimeout(timeout_s)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self._outgoing: deque[int] = deque()
        self._incoming: deque[int] = deque()

    def pass_on(self, descriptor: int) -> None:
        """Passes a descriptor on ahead of whatever is sent from now on. It must stay open until it has left."""
        self._outgoing.append(descriptor)

    def passed(self) -> int:
        """Returns the oldest descriptor that came, now the caller's. Raises ProtocolError when there is none."""
        try:
            return self._incoming.popleft()
        except IndexError:
            raise ProtocolError("the other side refers to memory that it has not shared") from None

    @property
    def unclaimed(self) -> int:
        """Returns the number of descriptors that came and that nobody took."""
        return len(self._incoming)

    def drop_passed(self) -> None:
        """Closes the descriptors that nobody took."""
        while self._incoming:
            os.close(self._incoming.popleft())

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:
        """Sends buffers, with the descriptors that wait; returns the bytes that the kernel took."""
        if not self._outgoing:
            return super().sendmsg(buffers)
        passed = list(self._outgoing)[:UNCLAIMED_MAX]
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))
        sent = super().sendmsg(buffers, [rights])
        for _sent in passed:  # only now: it may have raised BlockingIOError
            self._outgoing.popleft()
        return sent

    def recv_into(self, buffer: Any, *_: Any) -> int:
        """Receives into `buffer`, and keeps the descriptors that come along.

        Raises ProtocolError for more descriptors than anybody needs to pass on at a time.
        """
        n, ancillary, flags, _ = self.recvmsg_into((buffer,), _ANCILLARY_BYTES, _CLOEXEC)
        if not ancillary and not flags & _CUT:
            return n
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._incoming.extend(array.array("i", data[: len(data) // 4 * 4]))
        if flags & _CUT or len(self._incoming) > UNCLAIMED_MAX:
            raise ProtocolError("the other side passes descriptors that nobody asked for")
        return n

    def close(self) -> None:
        self.drop_passed()
        super().close()


def listen(backlog: int) -> socket.socket:
    """Returns a listener under a name that nobody else has. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(f"\0paceline-{secrets.token_hex(16)}")
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def connect(name: str, timeout_s: float) -> UnixStream:
    """Connects to the listener of that name. Raises OSError when it is not there, or another user's."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(f"\0{name}")
        if not same_user(sock):
            raise PermissionError("another user listens there")
        return UnixStream(sock)
    except OSError:
        sock.close()
        raise


def same_user(sock: socket.socket) -> bool:
    """Returns True if the process at the other end runs under this user, as the kernel knows it."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(data)[1] == os.getuid())


def map_read_only(descriptor: int, nbytes: int) -> memoryview:
    """Returns the content of a file as memory. Raises ProtocolError if it is too short, or could become shorter.

    A file that another process shortens would end this one with SIGBUS at the next read, so it has to be sealed.
    """
    try:
        if not keeps_its_length(descriptor) or os.fstat(descriptor).st_size < nbytes:
            raise ProtocolError(f"the other side shares memory that is shorter than {nbytes} bytes, or may become so")
        return memoryview(map_shared(descriptor, nbytes, write=False)).cast("B").toreadonly()
    except (OSError, ValueError) as error:
        raise ProtocolError(f"the other side shares memory that cannot be mapped: {error}") from None
