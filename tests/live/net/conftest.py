"""Fixtures of this folder."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from paceline.core.coordination.party import COORDINATOR
from tests.live.bare_transport import Someone
from tests.live.fakes import tcp_pair
from tests.live.net.ends import End

BODY_BYTES_MAX = 1 << 28


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    one, other = map(End, tcp_pair())
    yield one, other
    one.close()
    other.close()
    assert one.failures.empty()
    assert other.failures.empty()


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, End]]:
    """A bare socket, and the end it speaks to."""
    sock, other = tcp_pair()
    end = End(other)
    with sock:
        yield sock, end
    end.close()
    assert end.failures.empty()


@pytest.fixture
def host(someone: Callable[..., Someone]) -> Someone:
    return someone(COORDINATOR)
