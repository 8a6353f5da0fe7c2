"""Two runs do not write into one folder."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.launch.local.train import Silent
from paceline.live.net.inprocess_transport import Hub
from paceline.live.protocol.transport import Transport
from paceline.runtime.run_folder.run_lock import LOCK, RunLock
from paceline.runtime.supervisor.supervisor import RunSupervisor
from paceline.runtime.thread_launcher import ThreadLauncher
from tests.runtime.one_process import config_for


def in_a_child(out: Path) -> int:
    """A process that holds the folder; returns once it does."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        RunLock(out)
        os.write(write, b"!")
        signal.pause()
    os.close(write)
    assert os.read(read, 1) == b"!"
    os.close(read)
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_second_is_refused_by_host_and_process_until_the_first_is_dead(tmp_path: Path) -> None:
    child = in_a_child(tmp_path)
    try:
        with pytest.raises(ConfigError, match=f"host {socket.gethostname()}, pid {child}.* writes there now"):
            RunLock(tmp_path)
    finally:
        end(child)
    assert (tmp_path / LOCK).exists()
    RunLock(tmp_path).release()
    assert not (tmp_path / LOCK).exists()


def test_who_holds_a_folder_that_is_shared_may_be_on_another_host(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("elsewhere.example 77\n")
    with pytest.raises(ConfigError, match=r"host elsewhere.example \(pid 77\).*remove .*\.lock"):
        RunLock(tmp_path)
    (tmp_path / LOCK).unlink()
    RunLock(tmp_path).release()


def test_one_that_is_released_can_be_taken_again_and_makes_its_folder(tmp_path: Path) -> None:
    for _ in range(2):
        claim = RunLock(tmp_path / "new")
        assert (tmp_path / "new" / LOCK).exists()
        with pytest.raises(ConfigError):
            RunLock(tmp_path / "new")
        claim.release()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_where_the_file_system_has_no_locks_what_is_written_there_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    RunLock(tmp_path).release()
    (tmp_path / LOCK).write_text(f"{socket.gethostname()} {os.getppid()}\n")
    with pytest.raises(ConfigError, match=f"pid {os.getppid()}.* writes there now"):
        RunLock(tmp_path)
    (tmp_path / LOCK).write_text(f"{socket.gethostname()} {1 << 30}\n")
    RunLock(tmp_path).release()


def test_another_error_of_the_file_system_is_told_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ConfigError, match="Input/output error"):
        RunLock(tmp_path)
    if Path("/proc/self/fd").exists():
        open_files = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
        assert [name for name in open_files if name.startswith(str(tmp_path))] == []


def test_a_run_that_cannot_listen_where_it_is_told_to_leaves_its_folder_to_others(tmp_path: Path) -> None:
    def transport(token: str, failed: object) -> Transport:
        raise ConfigError("--bind 300.0.0.1: no address of this machine")

    config = config_for(tmp_path, steps=1)
    with pytest.raises(ConfigError, match="--bind"):
        RunSupervisor(config, transport, ThreadLauncher(Hub()), Silent())
    assert not (tmp_path / LOCK).exists()
    RunLock(tmp_path).release()


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pwrite(file: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    before = {*os.listdir("/proc/self/fd")}
    with pytest.raises(ConfigError, match="--out .*: No space left on device"):
        RunLock(tmp_path)
    assert {*os.listdir("/proc/self/fd")} <= before, "others may have been closed meanwhile"
    monkeypatch.undo()
    RunLock(tmp_path).release()
