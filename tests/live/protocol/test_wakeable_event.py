"""An event whose waiters may wait for sockets at the same time."""

from __future__ import annotations

from paceline.live.protocol.wakeable_event import WakeableEvent
from tests.live.fakes import in_background


def test_whoever_waits_is_woken_from_another_thread() -> None:
    event = WakeableEvent()
    woken = [in_background(lambda: event.wait(15.0)) for _ in range(3)]
    event.set()
    assert [one() for one in woken] == [True] * 3
    assert event.wait(0.0)
    assert event.wakers == []


def test_a_wait_that_takes_too_long_returns_false_and_leaves_nothing() -> None:
    event = WakeableEvent()
    assert not event.wait(0.001)
    assert (event.is_set, event.wakers) == (False, [])


def test_all_wakers_are_called_also_one_that_takes_itself_out() -> None:
    event, called = WakeableEvent(), list[str]()

    def once() -> None:
        called.append("once")
        event.wakers.remove(once)

    event.wakers += [once, lambda: called.append("other")]
    event.set()
    assert called == ["once", "other"]
