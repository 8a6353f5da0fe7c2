"""`status.json`: what a run says of itself while it goes on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from paceline.core.coordination import party
from paceline.core.coordination.control_messages import NOTHING, Hello
from paceline.core.errors import ConfigError
from paceline.core.trace import Applied, MemberChange
from paceline.runtime.run_folder.status_file import STATUS, StatusFile, born, read_status, shown, starting


def hello(host: str = "h1", pid: int = 7, incarnation: int = 0) -> Hello:
    return Hello(address="", pid=pid, host=host, device="cuda:0", incarnation=incarnation)


def test_it_knows_who_takes_part_what_they_did_and_that_a_lost_one_came_back(tmp_path: Path) -> None:
    status_file = StatusFile(tmp_path, "asp")
    with status_file.kept():
        for who in (party.server(0), party.worker(1), party.worker(0)):
            status_file.joined(who, hello())
        status_file.recorded(Applied(at=1.0, shard=0, ranks=(0,), version=1, staleness=0, weight=1.0, samples=4))
        status_file.recorded(MemberChange(at=2.0, party="worker 1", event="lost", reason="silent"))
        status_file.write("training")
        there = {p.party: p for p in read_status(tmp_path).parties}
        assert list(there) == ["server 0", "worker 0", "worker 1"]
        assert (there["worker 0"].state, there["worker 1"].state) == ("joined", "lost")
        assert (there["worker 0"].device, there["server 0"].device) == ("cuda:0", "")
        status_file.joined(party.worker(1), hello("h2", 8, incarnation=1))
        status_file.progressed(party.worker(1), NOTHING)
        status_file.finished("steps")
    status = read_status(tmp_path)
    assert (status.state, status.reason, status.scheme, status.ended) == ("over", "steps", "asp", True)
    back = status.parties[-1]
    assert (back.host, back.pid, back.incarnation, back.state) == ("h2", 8, 1, "joined")
    assert [path.name for path in tmp_path.iterdir()] == [STATUS]


def test_between_two_seconds_only_a_change_of_state_is_written(tmp_path: Path) -> None:
    status_file = StatusFile(tmp_path, "bsp")
    status_file.write("training")
    (tmp_path / STATUS).unlink()
    status_file.write("training")
    assert not (tmp_path / STATUS).exists()
    status_file.write("finishing")
    assert read_status(tmp_path).state == "finishing"


def test_a_run_that_fails_says_why_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), StatusFile(tmp_path, "bsp").kept():
        raise RuntimeError("worker 1: a bad sample\nTraceback ...")
    assert (read_status(tmp_path).state, read_status(tmp_path).reason) == ("failed", "worker 1: a bad sample")


def test_a_process_is_told_by_more_than_its_number() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    first = born(child.pid)
    assert first != born(os.getpid()) != ""
    assert first.split()[0] == born(os.getpid()).split()[0]  # the same boot
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert born(child.pid) == ""  # a zombie leads nothing
    child.communicate()


def test_a_run_that_never_begins_leaves_nothing_and_one_that_does_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no partition"), starting(str(tmp_path / "runs" / "a"), "bsp"):
        assert read_status(tmp_path / "runs" / "a").state == "starting"
        raise ConfigError("no partition")
    assert list(tmp_path.iterdir()) == []
    with starting(str(tmp_path / "b"), "bsp"), StatusFile(tmp_path / "b", "bsp").kept():
        pass
    assert read_status(tmp_path / "b").state == "over"


def test_one_that_never_begins_leaves_what_was_there_and_never_touches_a_run_that_goes_on(tmp_path: Path) -> None:
    with StatusFile(tmp_path, "bsp").kept():
        pass
    over = (tmp_path / STATUS).read_bytes()
    with pytest.raises(ConfigError, match="no partition"), starting(str(tmp_path), "asp"):
        assert read_status(tmp_path).state == "starting"
        raise ConfigError("no partition")
    assert (tmp_path / STATUS).read_bytes() == over
    other = msgspec.structs.replace(
        read_status(tmp_path), state="starting", pid=os.getppid(), born=born(os.getppid()), scheme="ssp"
    )
    (tmp_path / STATUS).write_bytes(msgspec.json.encode(other))
    with starting(str(tmp_path), "asp"):
        assert read_status(tmp_path) == other
    assert read_status(tmp_path) == other


def test_a_disk_that_takes_nothing_costs_neither_the_run_nor_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with starting(str(tmp_path), "asp"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_status_is_told(tmp_path: Path) -> None:
    (tmp_path / STATUS).write_text('{"pid": "x"}')
    with pytest.raises(ConfigError, match="cannot be read"):
        read_status(tmp_path)


def test_values_of_the_environment_are_not_shown() -> None:
    argv = ["/venv/bin/paceline", "launch", "--env", "KEY=secret", "--env=A=b", "--env", "K", "python", "t.py", "--x=1"]
    assert " ".join(shown(argv)) == "paceline launch --env KEY=... --env=A=... --env K python t.py --x=1"


def test_a_folder_whose_name_is_no_utf_8_is_told_in_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xffad"))
    folder.mkdir()
    with StatusFile(folder, "bsp").kept():
        assert read_status(folder).folder == f"{tmp_path}/b\\xffad"
