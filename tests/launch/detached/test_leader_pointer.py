"""Who leads a run, as its folder tells it on the host where the command was typed, and nowhere else."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from paceline.cli.commands import status
from paceline.cli.support.find_run import found
from paceline.launch.detached import other_host
from paceline.launch.detached.leader_pointer import POINTER, LeaderHost, LedElsewhere, leader_host


def pointed(folder: Path, seen_from: str = "") -> LeaderHost:
    """A run in `folder` that host h2 leads."""
    leader = LeaderHost(
        seen_from=seen_from or socket.gethostname(), began=5.0, host="h2", out="runs/a", python="python", folder="/work"
    )
    folder.mkdir(parents=True)
    (folder / POINTER).write_bytes(msgspec.json.encode(leader))
    return leader


def test_a_pointer_counts_on_the_host_where_it_was_written(tmp_path: Path) -> None:
    leader = pointed(tmp_path / "a")
    pointed(tmp_path / "b", seen_from="another")
    assert leader_host(tmp_path / "a") == leader
    assert leader_host(tmp_path / "b") is None
    assert leader_host(tmp_path) is None
    (tmp_path / "a" / POINTER).write_text("{")
    assert leader_host(tmp_path / "a") is None


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
