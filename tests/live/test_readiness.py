"""Both ways to ask which descriptors are ready say the same."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from paceline.live import readiness
from paceline.live.readiness import READ, WRITE, Readiness, Selectors

WAYS: list[Callable[[], Readiness]] = [Selectors]
if sys.platform == "linux":
    WAYS.append(readiness.Epoll)


@pytest.fixture(params=WAYS)
def watching(request: pytest.FixtureRequest) -> Iterator[Readiness]:
    found = request.param()
    yield found
    found.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_descriptor_is_ready_for_what_is_asked(
    watching: Readiness, pair: tuple[socket.socket, socket.socket]
) -> None:
    one, other = pair
    watching.register(one.fileno(), READ)
    assert watching.select(0) == []
    other.send(b"x")
    assert watching.select(None) == [(one.fileno(), READ)]
    watching.modify(one.fileno(), READ | WRITE)
    assert watching.select(1.0) == [(one.fileno(), READ | WRITE)]
    watching.modify(one.fileno(), WRITE)
    assert watching.select(1.0) == [(one.fileno(), WRITE)]
    watching.unregister(one.fileno())
    assert watching.select(0.0) == []


def test_the_end_of_a_stream_can_be_read(watching: Readiness, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    watching.register(one.fileno(), READ)
    other.close()
    ((number, events),) = watching.select(1.0)
    assert number == one.fileno()
    assert events & READ


def test_a_closed_descriptor_can_be_unregistered(
    watching: Readiness, pair: tuple[socket.socket, socket.socket]
) -> None:
    number = pair[0].fileno()
    watching.register(number, READ)
    pair[0].close()
    watching.unregister(number)
    assert watching.select(0) == []


def test_a_wait_is_no_shorter_than_asked_and_a_late_timer_does_not_wait(watching: Readiness) -> None:
    began = time.monotonic()
    watching.select(0.0101)
    assert time.monotonic() - began >= 0.0101
    assert watching.select(-1.0) == [], "a timer that is due already"
