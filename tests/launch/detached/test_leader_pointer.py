"""Who leads a run, as its folder tells it on the host where the command was typed, and nowhere else."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.cli.commands import attach, grow, kill, logs, status
from paceline.cli.support.find_run import found
from paceline.core.errors import ConfigError
from paceline.launch.detached import other_host
from paceline.launch.detached.leader_pointer import KEPT_SECONDS, POINTER, LeaderHost, LedElsewhere, leader_host, point


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def pointed(folder: Path, seen_from: str = "", began: float = 5.0) -> LeaderHost:
    """A run in `folder` that host h2 leads."""
    leader = LeaderHost(
        run=str(folder.resolve()),
        seen_from=seen_from or socket.gethostname(),
        began=began,
        host="h2",
        out="runs/a",
        python="python",
        folder="/work",
    )
    point(folder, leader)
    return leader


def test_a_pointer_counts_on_the_host_where_it_was_written(tmp_path: Path) -> None:
    leader = pointed(tmp_path / "a")
    pointed(tmp_path / "b", seen_from="another")
    assert leader_host(tmp_path / "a") == leader
    assert leader_host(tmp_path / "b") is None
    assert leader_host(tmp_path) is None
    (tmp_path / "a" / POINTER).write_text("{")
    assert leader_host(tmp_path / "a") is None


def test_entries_of_folders_that_are_gone_are_removed(tmp_path: Path) -> None:
    def entries() -> set[str]:
        return {msgspec.json.decode(path.read_bytes())["run"] for path in (tmp_path / "state").rglob("*.json")}

    a, b, c, far = (
        pointed(tmp_path / name, seen_from).run for name, seen_from in zip("abcd", ("", "", "", "another"), strict=True)
    )
    pointed(tmp_path / "a")
    assert len([*(tmp_path / "state").rglob("*.json")]) == 4, "the run before in that folder has no entry any more"
    shutil.rmtree(b)
    pointed(tmp_path / "a", began=KEPT_SECONDS)
    assert entries() == {a, b, c, far}, "its disk may be mounted again"
    pointed(tmp_path / "e", began=KEPT_SECONDS + 6.0)
    assert entries() == {a, c, far, str(tmp_path / "e")}
    assert leader_host(tmp_path / "c") is not None


def test_a_folder_names_no_host_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = pointed(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert leader_host(tmp_path / "copy") is None, "its key is that of another folder"
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "entry.json").write_bytes(msgspec.json.encode(leader))
    for content in (
        msgspec.json.encode(leader),
        msgspec.json.encode({**msgspec.to_builtins(leader), "key": "0" * 32}),
        b'{"key": "../../../evil/entry"}',
        b'{"key": "' + str(tmp_path / "evil" / "entry").encode() + b'"}',
    ):
        (tmp_path / "a" / POINTER).write_bytes(content)
        assert leader_host(tmp_path / "a") is None
    assert (tmp_path / "state" / "paceline" / "leaders").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("verb", [status, kill, logs, attach, grow])
def test_no_verb_calls_ssh_for_a_folder_of_somebody_else(
    verb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was once: `config` is a file for ssh -F in that folder, whose ProxyCommand is executed."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    (folder / "config").write_text(f"Host *\n  ProxyCommand touch {tmp_path}/executed\n")
    told = LeaderHost(
        run=str(folder),
        seen_from=socket.gethostname(),
        began=5.0,
        host="h2",
        out="a",
        python="python",
        folder="/",
        config=str(folder / "config"),
    )
    (folder / POINTER).write_bytes(msgspec.json.encode(told))
    monkeypatch.setattr(other_host, "_executed", lambda command, host: pytest.fail(f"{command} was executed"))
    more = ["--by", "1"] if verb is grow else []
    for words in (more, ["a", *more], ["runs/a", *more]):
        with pytest.raises(ConfigError, match=r"no run below runs/|not the folder of a run|no such folder"):
            verb.main(words)


def test_a_run_is_found_by_its_pointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pointed(tmp_path / "runs" / "a")
    for name in (None, "a", "runs/a"):
        with pytest.raises(LedElsewhere, match="runs/a is led by h2: run this there, in /work"):
            found(name)


@pytest.mark.parametrize("words", [[], ["a"], ["runs/a/"], ["./runs/a"], ["runs/a", "--json"]])
def test_a_verb_is_executed_where_the_run_is_led(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pointed(tmp_path / "runs" / "a")
    executed: list[list[str]] = []
    monkeypatch.setattr(other_host, "_executed", lambda command, host: executed.append([*command, host]) or 7)
    assert status.main(words) == 7
    ((*ssh, command, host),) = executed
    assert (ssh[0], host) == ("ssh", "h2")
    more = " --json" if "--json" in words else ""
    assert command == f"cd /work && exec python -m paceline status runs/a{more}"
