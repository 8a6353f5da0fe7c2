from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live import doubles
from tests.live.company import Company
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


@pytest.fixture
def companies() -> Iterator[Any]:
    made: list[Company] = []

    def make(**more: Any) -> Company:
        made.append(Company(**more))
        return made[-1]

    yield make
    for company in made:
        company.close()
