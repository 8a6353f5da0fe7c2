"""Engines: the text of what starts agents, who goes where, and how a start that fails is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.engines.callback_agents import TICKET, EngineCommand, called, listening_address, placed_on
from paceline.launch.engines.mpi import Mpi, write_hostfile
from paceline.launch.engines.ray import AgentRestarts, configured
from paceline.launch.engines.sge import GridEngine
from paceline.launch.engines.slurm import Slurm
from paceline.launch.remote.hostfile import parse_hosts
from paceline.launch.remote.launcher import begin
from tests.launch.process_tree import alive, within

pytest.importorskip("cryptography", reason="`make` installs what a launch's authority needs")

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


# ---- what is executed ------------------------------------------------------------------------------------
def test_mpirun_gets_a_hostfile_of_its_own_kind(tmp_path: Path) -> None:
    write_hostfile(parse_hosts("gpu1 slots=2 gpus=0,1\ngpu2\n"), tmp_path / "hosts")
    assert (tmp_path / "hosts").read_text() == "gpu1 slots=2\ngpu2 slots=1\n"
    command = Mpi(hostfile="hosts", extra=("--display-map",)).command(3, AGENT)
    assert command[0] == "mpirun"
    assert command[-6:] == ["-n", "3", "--display-map", *AGENT]
    assert "--hostfile" in command
    assert ("--allow-run-as-root" in command) == (os.geteuid() == 0)


def test_srun_asks_for_an_allocation_where_it_has_none_and_overlaps_with_the_launcher_where_it_has() -> None:
    outside = Slurm(hosts=parse_hosts("n1\nn2\n"), extra=("--partition=gpu",)).command(2, AGENT)
    assert outside[:2] == ["srun", "--ntasks=2"]
    assert {"--no-kill", "--job-name=paceline", "--nodelist=n1,n2", "--partition=gpu"} <= {*outside}
    assert outside[-3:] == AGENT
    within = Slurm(inside=True).command(2, AGENT)
    assert "--overlap" in within
    assert not {"--no-kill", "--job-name=paceline"} & {*within}


def test_grid_engine_gets_an_array_job_that_is_deleted_by_its_name() -> None:
    one, other = GridEngine(logs="logs", path="/src"), GridEngine(logs="logs")
    command = one.command(4, AGENT)
    assert command[:3] == ["qsub", "-sync", "y"]
    assert command[command.index("-t") + 1] == "1-4"
    assert command[command.index("-v") + 1] == "PYTHONPATH=/src"
    assert one.cancel() == ["qdel", one.job]
    assert one.job != other.job


def flag(command: Sequence[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_ray_gets_an_address_a_strategy_and_what_each_worker_needs() -> None:
    command = configured(["address=h1:6379", "GPU=1", "strategy=PACK"], servers=2).command(2, AGENT)
    assert command[1:3] == ["-m", "paceline.launch.engines.ray"]
    assert json.loads(flag(command, "--bundles")) == [{"CPU": 1, "GPU": 1}] * 2
    assert flag(command, "--address") == "h1:6379"
    assert "--labels" not in command
    assert command[-4:] == ["--", *AGENT]


def test_ray_puts_workers_and_servers_on_nodes_of_their_own_by_resources_and_labels() -> None:
    engine = configured(["GPU=1", "label=accelerator:H200", "server.CPU=4", "server.label=kind:cpu"], servers=2)
    assert engine.apart == 2
    command = engine.command(3, AGENT)
    assert json.loads(flag(command, "--bundles")) == [{"CPU": 4}, {"CPU": 4}, {"CPU": 1, "GPU": 1}]
    assert json.loads(flag(command, "--labels")) == [{"kind": "cpu"}] * 2 + [{"accelerator": "H200"}]


def test_an_agent_of_ray_that_dies_is_started_again_unless_it_dies_at_once_again_and_again() -> None:
    clock = [0.0]
    incarnations = AgentRestarts(lambda: clock[0])

    def incarnation(seconds: float, why: str) -> bool:
        incarnations.begins(0)
        clock[0] += seconds
        return incarnations.again(0, why)

    assert [incarnation(1.0, "it ended with -9") for _ in range(3)] == [True, True, False]
    assert [incarnation(60.0, "its node died") for _ in range(5)] == [True] * 5
    assert not incarnation(60.0, "")  # in order


@pytest.mark.parametrize("launcher", ["mpi", "slurm", "sge", "ray", "torchrun"])
def test_a_dry_run_prints_the_command_and_starts_nothing(
    launcher: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["launch", "--launcher", launcher, "-n", "3", "-i", "127.0.0.1", "--dry-run", "paceline", "train"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "paceline.launch.remote.agent --dial" in out
    assert "3 agents" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--launcher sge -H hosts", "Grid Engine chooses hosts itself"),
        ("--launcher yarn -H hosts", "YARN chooses hosts itself"),
        ("--launcher yarn", "needs the distributed shell's jar"),
        ("--launcher yarn --launcher-args memory=1G", "memory=1G: a whole number of MiB"),
        ("--launcher torchrun -H hosts", "torchrun starts processes here"),
        ("--launcher ray -H hosts", "Ray chooses hosts itself"),
        ("--launcher ray --launcher-args strategy=FAST", "write address=HOST:PORT, strategy=SPREAD|"),
        ("--launcher ray --launcher-args server.label=cpu", "write address=HOST:PORT, strategy=SPREAD|"),
        ("--launcher mpi --sync-dir /tmp/x", "--sync-dir is for --launcher ssh"),
        ("--launcher mpi --launcher-args '", "--launcher-args: No closing quotation"),
        ("--launcher mpi --start-timeout soon", "--start-timeout soon: a number of seconds above 0"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    words: str, expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("h1\n")
    assert main(["launch", "-i", "127.0.0.1", *words.split(), "paceline", "train"]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) == 1, err


# ---- who goes where --------------------------------------------------------------------------------------
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


# ---- starting --------------------------------------------------------------------------------------------
def test_agents_come_in_the_order_of_their_numbers_and_the_ticket_goes(tmp_path: Path) -> None:
    with called(
        Here(program=EVERY_AGENT), 2, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=120
    ) as callers:
        assert [hello.task for hello, _ in callers] == [0, 1]
        assert not (tmp_path / TICKET).exists()
    assert all(not host.alive for _, host in callers)


def test_an_agent_that_its_engine_tells_to_end_leaves_that_to_the_launcher_for_a_while(tmp_path: Path) -> None:
    with called(
        Here(program=EVERY_AGENT), 1, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=120
    ) as [(hello, host)]:
        os.kill(hello.pid, signal.SIGTERM)
        begin([host], placed_on([("here", "")], 1), command=["true"])  # raises where there is no answer
        os.kill(hello.pid, signal.SIGTERM)
        assert within(10, lambda: not alive(hello.pid))


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import sys; print('no such partition'); sys.exit(3)", "here ended with 3: no such partition"),
        ("import sys; sys.stdin.read(); import threading; threading.Event().wait(60)", "1 s are over"),
    ],
)
def test_a_start_that_fails_says_what_the_engine_said_and_leaves_no_ticket(
    program: str, expected: str, tmp_path: Path
) -> None:
    with (
        pytest.raises(PacelineError, match="--launcher here: 0 of 2 agents called back: " + expected),
        called(Here(program=program), 2, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=1),
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
        called(Here(program=look), 1, address="127.0.0.1", python=sys.executable, folder=tmp_path, seconds=30),
    ):
        pass
