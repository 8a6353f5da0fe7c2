"""Parties as threads: they are waited for, longer than processes that could be killed."""

from __future__ import annotations

import threading

import pytest

from paceline.live.net.inprocess_transport import Hub
from paceline.runtime import thread_launcher
from paceline.runtime.thread_launcher import ThreadLauncher


def launched(run: threading.Event) -> ThreadLauncher:
    """A launcher of one worker, which ends once the event is set."""
    launcher = ThreadLauncher(Hub())
    launcher._threads["worker 0"] = threading.Thread(target=run.wait, daemon=True)
    launcher._threads["worker 0"].start()
    return launcher


def test_a_thread_may_take_longer_to_end_than_a_process_would_be_given() -> None:
    ends = threading.Event()
    launcher = launched(ends)
    threading.Timer(0.2, ends.set).start()
    launcher.end(0.0)
    assert not launcher._threads["worker 0"].is_alive()


def test_one_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_launcher, "END_SECONDS_MIN", 0.0)
    ends = threading.Event()
    with pytest.raises(RuntimeError, match="still running: worker 0"):
        launched(ends).end(0.01)
    ends.set()
