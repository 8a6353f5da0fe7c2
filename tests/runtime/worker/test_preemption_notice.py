"""SIGTERM to one worker, and to all of them at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.runtime.worker.preemption_notice import REASON, PreemptionNotice


@pytest.fixture
def session() -> Any:
    return SimpleNamespace(over=threading.Event(), notice="")


@pytest.fixture(autouse=True)
def as_usual() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def signalled() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_one_that_trains_is_to_go_home(session: Any) -> None:
    notice = PreemptionNotice(session)
    signalled()
    assert session.notice == REASON
    notice.close()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_while_the_run_ends_the_first_changes_nothing_and_the_second_ends_the_process(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    PreemptionNotice(session)
    session.over.set()  # somebody told the whole group, and the coordinator was quicker
    signalled()
    assert session.notice == ""
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    ended = list[int]()
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(number))
    kill(os.getpid(), signal.SIGTERM)
    assert ended == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_one_that_comes_before_training_is_heard_once_it_begins(session: Any) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as in a worker, which has no other thread by then
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    notice = PreemptionNotice(session)
    assert session.notice == REASON
    notice.close()
