"""Two runs do not write into one folder."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.job.claim import LOCK, Claim


def in_a_child(out: Path) -> int:
    """A process that holds the folder; returns once it does."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        Claim(out)
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
            Claim(tmp_path)
    finally:
        end(child)
    assert (tmp_path / LOCK).exists()
    Claim(tmp_path).release()
    assert not (tmp_path / LOCK).exists()


def test_who_holds_a_folder_that_is_shared_may_be_on_another_host(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("elsewhere.example 77\n")
    with pytest.raises(ConfigError, match=r"host elsewhere.example \(pid 77\).*remove .*\.lock"):
        Claim(tmp_path)
    (tmp_path / LOCK).unlink()
    Claim(tmp_path).release()


def test_one_that_is_released_can_be_taken_again_and_makes_its_folder(tmp_path: Path) -> None:
    for _ in range(2):
        Claim(tmp_path / "new").release()
