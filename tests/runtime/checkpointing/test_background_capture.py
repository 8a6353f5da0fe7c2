"""A capture in a thread of its own: what it gives, and when."""

from __future__ import annotations

import threading

import pytest

from paceline.core.errors import Undone
from paceline.runtime.checkpointing.background_capture import BackgroundCapture


def test_the_caller_goes_on_until_the_capture_says_that_it_is_done() -> None:
    goes, done = threading.Event(), threading.Event()
    capture = BackgroundCapture[bool]()
    assert not capture.under_way
    capture.begin(lambda: goes.wait(60.0), done.set)
    assert capture.under_way
    assert not capture.complete
    assert not done.is_set()
    goes.set()
    assert done.wait(60.0)
    assert capture.complete
    assert capture.take() is True
    assert not capture.under_way
    assert not capture.complete


def test_an_error_of_the_capture_is_raised_by_who_takes_it_and_another_one_can_begin() -> None:
    capture, done = BackgroundCapture[int](), threading.Event()

    def fails() -> int:
        raise Undone("server 0 was replaced")

    capture.begin(fails, done.set)
    assert done.wait(60.0)
    with pytest.raises(Undone, match="server 0"):
        capture.take()
    capture.begin(lambda: 7, lambda: None)
    assert capture.take() == 7  # waits for it
