"""The lock of a folder that several hosts share: taken over from a holder that is silent for one lease, and fenced."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, LockLost
from paceline.launch.local.train import Silent
from paceline.runtime.run_folder import lock_file
from paceline.runtime.run_folder.lock_file import (
    LEASE_SECONDS,
    LOCK,
    LOOK_SECONDS,
    RENEW_SECONDS,
    LockFence,
    holder_in,
    read,
)
from paceline.runtime.run_folder.result_files import Results
from paceline.runtime.run_folder.run_lock import RunLock
from paceline.runtime.run_folder.status_file import STATUS, StatusFile
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for


class Time:
    """A clock that goes on only while somebody pauses; `each` is called after every pause with the time."""

    def __init__(self, each: Callable[[float], None] = lambda now: None) -> None:
        self.now, self._each = 0.0, each

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self._each(self.now)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunLock:
    """The claim of a run on another host, of whose lock this kernel knows nothing."""
    with monkeypatch.context() as there:
        there.setattr("socket.gethostname", lambda: "elsewhere.example")
        there.setattr(lock_file, "boot_id", lambda: "another-boot")
        there.setattr("paceline.runtime.run_folder.run_lock.try_lock", lambda file: True)
        return RunLock(tmp_path, "theirs")


def taken(out: Path, time: Time, token: str = "ours", said: list[str] | None = None) -> RunLock:
    said = [] if said is None else said
    return RunLock(out, token, waits=True, say=said.append, clock=time.clock, pause=time.pause)


def test_a_lock_that_nobody_renews_is_taken_over_after_one_lease_and_whom_one_waits_for_is_said(
    tmp_path: Path, elsewhere: RunLock
) -> None:
    time, said = Time(), list[str]()
    claim = taken(tmp_path, time, said=said)
    assert LEASE_SECONDS <= time.now <= LEASE_SECONDS + 3 * LOOK_SECONDS
    assert len(said) == 2
    assert f"host elsewhere.example, pid {os.getpid()}: waiting up to 20 s" in said[0]
    assert "taken over" in said[1]
    assert claim.renew() == ""
    claim.release()
    assert list(tmp_path.iterdir()) == []


def test_the_old_holder_finds_when_it_wakes_up_that_it_lost_and_leaves_the_lock_alone(
    tmp_path: Path, elsewhere: RunLock
) -> None:
    assert elsewhere.renew() == ""
    claim = taken(tmp_path, Time())
    before = (tmp_path / LOCK).read_bytes()
    assert "another run (host " in elsewhere.renew()
    with pytest.raises(LockLost, match="writes nothing there any more"):
        LockFence(tmp_path, "theirs").check()
    StatusFile(tmp_path, "bsp", elsewhere.fence).write("training", at_once=True)
    assert not (tmp_path / STATUS).exists()
    said: list[str] = []
    assert not Results(tmp_path, "theirs", said.append, elsewhere.fence).write("summary.json", Path.touch)
    assert said[0].startswith("summary.json was not written: another run")
    elsewhere.release()
    assert (tmp_path / LOCK).read_bytes() == before
    LockFence(tmp_path, "ours").check()
    claim.release()
    with pytest.raises(LockLost, match="was removed"):  # the one that took it over is done by now
        LockFence(tmp_path, "theirs").check()


def test_a_holder_that_renews_its_lock_keeps_it_whatever_its_wall_clock_says(
    tmp_path: Path, elsewhere: RunLock
) -> None:
    def renew(now: float) -> None:
        if now % RENEW_SECONDS == 0:
            assert elsewhere.renew() == ""
            os.utime(tmp_path / LOCK, (10.0 - now, 10.0 - now))  # long ago, and going backwards

    time = Time(renew)
    with pytest.raises(ConfigError, match="host elsewhere.example, pid .* writes there now"):
        taken(tmp_path, time)
    assert LEASE_SECONDS <= time.now <= LEASE_SECONDS + RENEW_SECONDS
    assert elsewhere.renew() == ""


def test_a_change_of_the_time_or_of_the_beat_alone_is_a_sign_of_life(tmp_path: Path, elsewhere: RunLock) -> None:
    lock = tmp_path / LOCK
    for change in (lambda n: os.utime(lock, ns=(n, n)), lambda n: lock.write_bytes(elsewhere._me.line(n))):
        time = Time(lambda now, change=change: change(int(now * 10)))  # type: ignore[misc]
        with pytest.raises(ConfigError, match="writes there now"):
            taken(tmp_path, time)


def test_a_holder_that_dies_while_it_is_watched_is_silent_for_one_lease_from_then_on(
    tmp_path: Path, elsewhere: RunLock
) -> None:
    time = Time(lambda now: None if now > 7 else elsewhere.renew() and None)
    taken(tmp_path, time).release()
    assert 7 + LEASE_SECONDS - 1 <= time.now <= 7 + LEASE_SECONDS + 3 * LOOK_SECONDS


def test_a_holder_that_ends_in_order_is_followed_at_once(tmp_path: Path, elsewhere: RunLock) -> None:
    time = Time(lambda now: elsewhere.release() if now == 3.0 else None)
    taken(tmp_path, time).release()
    assert time.now == 3.0


def test_time_in_which_the_waiter_itself_slept_does_not_count(tmp_path: Path, elsewhere: RunLock) -> None:
    time = Time()
    lag = iter([1000.0])
    watch = lock_file.LockWatch(tmp_path / LOCK, lambda: time.now, lambda s: time.pause(s + next(lag, 0.0)))
    assert watch.expires(LEASE_SECONDS)
    assert time.now >= 1000.0 + LEASE_SECONDS - 2 * LOOK_SECONDS


def test_of_two_that_wait_as_long_one_has_it(tmp_path: Path, elsewhere: RunLock) -> None:
    """The other one of them comes between our last look and the end of our turn."""
    others: list[RunLock] = []

    def another(now: float) -> None:
        if now > LEASE_SECONDS and not others:
            (tmp_path / LOCK).unlink()
            others.append(RunLock(tmp_path, "another"))

    with pytest.raises(ConfigError, match="writes there now"):
        taken(tmp_path, Time(another))
    assert others[0].renew() == ""
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_without_resuming_nobody_waits_and_nothing_is_taken(tmp_path: Path, elsewhere: RunLock) -> None:
    with pytest.raises(ConfigError, match=r"host elsewhere.example .*remove .*\.lock"):
        RunLock(tmp_path, "ours", pause=lambda s: pytest.fail("it waited"))
    assert elsewhere.renew() == ""


def test_a_lock_of_an_earlier_version_which_nobody_renews_is_never_taken_over(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("elsewhere.example 77\n")
    with pytest.raises(ConfigError, match=r"pid 77\).*remove .*\.lock"):
        taken(tmp_path, Time())


def test_on_the_same_machine_nobody_waits_whatever_a_container_calls_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as there:
        there.setattr("socket.gethostname", lambda: "another-pod")
        first = RunLock(tmp_path, "first")
    with pytest.raises(ConfigError, match="host another-pod"):
        taken(tmp_path, Time(lambda now: pytest.fail("it waited")))
    os.close(first._file)  # as when its process is killed
    taken(tmp_path, Time(lambda now: pytest.fail("it waited"))).release()


def test_what_others_have_put_into_the_file_is_no_lease(tmp_path: Path) -> None:
    for lease in ("nan", "inf", "-1", "1e300", "x", ""):
        holder = holder_in(f"h 1 b r {lease}".encode())
        assert holder is not None
        assert holder.lease_s == 0.0
    assert holder_in(b"\xff\xfe") is not None
    assert holder_in(b"  \n") is None


def test_a_run_that_was_taken_over_ends_and_leaves_the_files_of_the_other_one_alone(
    threads: Runner, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.runtime.run_folder.run_lock.RENEW_SECONDS", 0.02)
    theirs = b"elsewhere.example 77 another-boot another-run 20 000000000001\n"

    class Takes(Silent):
        def begin(self, lines: Iterable[str]) -> None:
            if (out / LOCK).read_bytes() != theirs:
                (out / "theirs").write_bytes(theirs)
                (out / "theirs").replace(out / LOCK)  # at once: nobody finds an empty file
                (out / STATUS).write_text("theirs")

    with pytest.raises(RunFailed, match="another run .host elsewhere.example, pid 77. has taken .* over"):
        threads(config_for(out, steps=0, cluster={"step_ms": 5.0}, stop={"seconds": 60.0}), Takes())
    assert (out / LOCK).exists()
    assert (out / STATUS).read_text() == "theirs"
    assert not (out / "summary.json").exists()
    assert not (out / "model.safetensors").exists()


def test_a_lock_that_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(OSError, match="not a regular file"):
        read(tmp_path / LOCK)
    assert LockFence(tmp_path, "token").why_not == "", "what cannot be read is nobody's"
