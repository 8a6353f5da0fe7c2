from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.config import Config
from paceline.core.coordination import party
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent, make_supervisor
from paceline.live.net.inprocess_transport import Hub
from paceline.live.state.responsive_reads import Answering
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.progress import ProgressDisplay
from paceline.runtime.supervisor.supervisor import RunSupervisor
from paceline.runtime.thread_launcher import ThreadLauncher

Runner = Callable[..., Summary]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The workers of these runs share two cores or fewer; many threads each would only get in one another's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def host() -> Iterator[LocalHost]:
    """One warm process for all runs of these tests."""
    with LocalHost() as running:
        yield running


@pytest.fixture
def processes(host: LocalHost) -> Runner:
    """Runs a configuration as `paceline train` does, in processes over TCP."""
    return lambda config: make_supervisor(config, host.launcher(), Silent()).run()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that answers late, as on a busy machine, is not left out of statistics and means."""
    monkeypatch.setattr(Answering.__init__, "__defaults__", (60.0,))


def in_threads(config: Config, view: ProgressDisplay | None = None, **more: Any) -> Summary:
    """Runs a configuration in threads of this process, on a hub; `more`: for the supervisor."""
    hub = Hub()
    transport = lambda token, failed: hub.transport(party.COORDINATOR, failed)  # noqa: E731
    return RunSupervisor(config, transport, ThreadLauncher(hub), view or Silent(), **more).run()


@pytest.fixture
def threads() -> Iterator[Runner]:
    before = set(threading.enumerate())
    yield in_threads
    for thread in set(threading.enumerate()) - before:
        thread.join(60.0)
        assert not thread.is_alive(), thread.name


@pytest.fixture(params=["threads", "processes"])
def runner(request: pytest.FixtureRequest) -> Runner:
    """In process and live."""
    found: Runner = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"
