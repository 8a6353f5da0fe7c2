from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.live import doubles
from tests.live.stage import Stage


@pytest.fixture(autouse=True)
def _only_threads_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubles, "others", set(threading.enumerate()))


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()
    assert stage.failures() == []
