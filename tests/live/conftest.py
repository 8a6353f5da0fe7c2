from __future__ import annotations

import threading

import pytest

from tests.live import doubles


@pytest.fixture(autouse=True)
def _only_threads_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubles, "others", set(threading.enumerate()))
