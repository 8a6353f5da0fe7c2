"""Agents that an engine starts: who goes where, and how a start that fails is told."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.engines.callback_agents import TICKET, EngineCommand, called, listening_address, placed_on
from paceline.launch.remote.launcher import begin
from tests.launch.process_tree import alive, within

AGENT = ["python", "-m", "agent"]


@dataclass(frozen=True, kw_only=True)
class Here:
    """An engine that runs `program` of Python with the agents' command and their number as arguments."""

    program: str
    name: str = "here"
    hint: str = "there is no help"
    interpreter: str = sys.executable

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        return [self.interpreter, "-c", self.program, str(agents), *agent]

    def cancel(self) -> list[str]:
        return []


EVERY_AGENT = """
import os, subprocess, sys
count, agent = int(sys.argv[1]), sys.argv[2:]
all = [subprocess.Popen(agent, env={**os.environ, "PACELINE_TASK": str(count - 1 - n)}) for n in range(count)]
sys.exit(max(one.wait() for one in all))
"""


def test_workers_of_one_host_take_its_gpus_in_turn_unless_the_engine_has_shared_them_out() -> None:
    together = placed_on([("a", ""), ("a", ""), ("b", "")], servers=3)
    assert together.slots == (0, 1, 0)
    assert together.servers == (0, 2, 0)  # one a host before anybody gets two
    assert placed_on([("a", "0"), ("a", "1")], servers=1).slots == (0, 0)


def test_where_the_first_agents_are_for_servers_only_workers_are_on_the_others() -> None:
    placement = placed_on([("s", ""), ("t", ""), ("g", "0"), ("g", "1")], servers=3, apart=2)
    assert placement.servers == (0, 1, 0)
    assert placement.workers == (2, 3)
    assert len(placement.slots) == 2


def test_agents_call_an_address_that_others_can_reach() -> None:
    assert listening_address([("lo", "127.0.0.1"), ("eth0", "10.0.0.5")]) == "10.0.0.5"
    assert listening_address([("lo", "127.0.0.1")]) == "127.0.0.1"


def test_agents_come_in_the_order_of_their_numbers_and_the_ticket_goes(tmp_path: Path) -> None:
    with called(
        Here(program=EVERY_AGENT), 2, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=120
    ) as callers:
        assert [hello.task for hello, _ in callers] == [0, 1]
        assert not (tmp_path / TICKET).exists()
    assert within(60, lambda: not any(host.alive for _, host in callers))


def test_an_agent_that_its_engine_tells_to_end_leaves_that_to_the_launcher_for_a_while(tmp_path: Path) -> None:
    with called(
        Here(program=EVERY_AGENT), 1, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=120
    ) as [(hello, host)]:
        os.kill(hello.pid, signal.SIGTERM)
        begin([host], placed_on([("here", "")], 1), command=["true"])  # raises where there is no answer
        os.kill(hello.pid, signal.SIGTERM)
        assert within(60, lambda: not alive(hello.pid))


@pytest.mark.parametrize(
    ("program", "seconds", "expected"),
    [
        ("import sys; print('no such partition'); sys.exit(3)", 120, "here ended with 3: no such partition"),
        ("import sys; sys.stdin.read(); import threading; threading.Event().wait(60)", 1, "1 s are over"),
    ],
)
def test_a_start_that_fails_says_what_the_engine_said_and_leaves_no_ticket(
    program: str, seconds: int, expected: str, tmp_path: Path
) -> None:
    with (
        pytest.raises(PacelineError, match="--launcher here: 0 of 2 agents called back: " + expected),
        called(Here(program=program), 2, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=seconds),
    ):
        pass
    assert not (tmp_path / TICKET).exists()


def test_a_cancel_that_hangs_or_is_not_there_keeps_no_command_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.launch.engines.callback_agents.CANCEL_SECONDS", 0.1)
    engine = Here(program="import threading; threading.Event().wait(1000)")
    for cancel in (["sleep", "1000"], [str(tmp_path / "qdel")]):
        monkeypatch.setattr(Here, "cancel", lambda self, cancel=cancel: cancel)
        starter = EngineCommand(engine, engine.command(1, AGENT))
        starter.close()
        assert "ended with -15" in starter.why()


def test_an_engine_that_is_not_there_is_told_with_the_way_out(tmp_path: Path) -> None:
    nowhere = Here(program="", interpreter=str(tmp_path / "srun"))
    with (
        pytest.raises(ConfigError, match="srun: No such file or directory; there is no help"),
        called(nowhere, 1, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=1),
    ):
        pass


def test_the_ticket_is_for_its_owner_only(tmp_path: Path) -> None:
    look = "import sys, os; print(oct(os.stat(sys.argv[-1]).st_mode & 0o777)); sys.exit(1)"
    with (
        pytest.raises(PacelineError, match="0o600"),
        called(Here(program=look), 1, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=120),
    ):
        pass
