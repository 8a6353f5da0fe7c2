from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from paceline.core.coordination.party import Party
from paceline.live.same_host.shared_memory import Segments
from tests.live import fakes
from tests.live.bare_transport import Someone, all_go
from tests.live.node_fixture import Stage
from tests.live.scripted_parties import Company


@pytest.fixture(autouse=True)
def _only_threads_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "others", set(threading.enumerate()))


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()
    assert stage.failures() == []
    assert fakes.net_threads() == []


@pytest.fixture
def companies() -> Iterator[Any]:
    made: list[Company] = []

    def make(**more: Any) -> Company:
        made.append(Company(**more))
        return made[-1]

    yield make
    for company in made:
        company.close()


@pytest.fixture
def someone() -> Iterator[Callable[..., Someone]]:
    made: list[Someone] = []

    def make(*args: Any, **more: Any) -> Someone:
        made.append(Someone(*args, **more))
        return made[-1]

    yield make
    all_go(made)


@pytest.fixture
def local() -> Iterator[Callable[..., Someone]]:
    made: list[Someone] = []

    def make(me: Party, segments: Segments | None = None, **more: Any) -> Someone:
        made.append(Someone(me, segments=segments, **more))
        return made[-1]

    yield make
    all_go(made)
