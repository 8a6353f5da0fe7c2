"""Some processes of pytest and all that they start share the cores of one machine."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from paceline.launch.local.environment import PREFIX
from tests.launch.forked_cli import Warm

# Threads of OpenMP that wait for work shall sleep: by default they spin, and take the time from those who have work.
# Before torch is imported, here and in whatever a test starts.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# How long an example takes, or to draw it, is the machine's affair. A test draws the same examples each time, so that
# a change is judged by what it changes; `make explore` draws new ones.
settings.register_profile("new examples", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same examples", settings.get_profile("new examples"), derandomize=True, database=None)
settings.load_profile("same examples")


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """What starts `paceline train` in no time."""
    with Warm() as warm:
        yield warm


DRAW = ("paceline.runtime.supervisor.artifacts", "paceline.runtime.simulated.simulated_run")
"""The modules that draw curve.png at the end of a run."""


@pytest.fixture
def drawn() -> None:
    """For a test that looks at curve.png."""


@pytest.fixture(autouse=True)
def _not_drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """To draw curve.png takes half a second, of each of some thousand runs, most of which take less."""
    if "drawn" not in request.fixturenames:
        for module in filter(sys.modules.__contains__, DRAW):
            monkeypatch.setattr(f"{module}.curve", lambda out, path: None)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is started by hand, so that `join` makes a run of this process."""
    monkeypatch.delenv(f"{PREFIX}COORDINATOR", raising=False)


@pytest.fixture
def failures_to_accept(monkeypatch: pytest.MonkeyPatch) -> list[OSError]:
    """The next calls of `accept`, one for each of these, find no descriptor left; what has been raised is taken out."""
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")] * 2

    def exhausted(sock: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    return failures
