"""`paceline launch --hosts`: whole runs by an ssh that logs in to this machine, and what is refused before one."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline import __version__
from paceline.cli.commands.launch import main
from paceline.core.errors import ConfigError
from paceline.launch.remote.hostfile import HostEntry
from paceline.launch.remote.ssh import Ssh
from tests.launch.fake_ssh import put_ssh
from tests.launch.forked_cli import Warm
from tests.launch.process_tree import LIGHT, all_gone

ROOT = str(Path(__file__).parents[3])


Launch = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def launch(warm: Warm, tmp_path: Path) -> Launch:
    """Exit code, what was printed, and the lines of standard error of a launch in the folder of the test."""
    environment = {**os.environ, "PATH": f"{put_ssh(tmp_path)}:{os.environ['PATH']}", "PYTHONPATH": ROOT}

    def start(hosts: str, *options: str) -> tuple[int, str, list[str]]:
        (tmp_path / "hosts").write_text(hosts)
        words = ["launch", "-H", "hosts", "--env", "PYTHONPATH", *options]
        command = warm.paceline(*words, folder=tmp_path, environment=environment)
        out, err = command.communicate(170)
        assert command.returncode is not None
        return command.returncode, out, err.strip().splitlines()

    return start


def test_paceline_train_runs_on_the_hosts_of_the_file(launch: Launch, tmp_path: Path) -> None:
    hosts = "a group=x\nb group=y\n"
    options = [
        "-i",
        "127.0.0.1",
        "--tls",
        "on",
        "paceline",
        "train",
        "--scheme",
        "gsp",
        "--epochs",
        "2",
        "--out",
        "run",
    ]
    code, out, err = launch(hosts, *options)
    assert code == 0, err
    assert "left in run: " in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert len(summary["workers"]) == 2
    config = (tmp_path / "run" / "config.toml").read_text()
    assert 'groups = "0;1"' in config
    assert {"model.safetensors", "logs"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_a_script_is_known_by_its_rank_and_host_and_its_failure_by_its_cause(launch: Launch, tmp_path: Path) -> None:
    there = f"""
import os, threading
from pathlib import Path
rank = os.environ["PACELINE_RANK"]
print("rank", rank, os.getpid(), flush=True)
Path({str(tmp_path)!r}, "here-" + rank).touch()
while len([*Path({str(tmp_path)!r}).glob("here-*")]) < 2:  # else the first to fail could end the run before the other
    threading.Event().wait(0.02)
raise SystemExit("no disk")
"""
    (tmp_path / "s.py").write_text(there)
    code, out, err = launch("a\nb\n", "-i", "127.0.0.1", "python", "s.py")
    assert code == 1
    assert "[worker 1 (a)] rank 1" in out  # the last address comes first, as MXNet counted
    assert "[worker 0 (b)] rank 0" in out
    first = next(line for line in err if line.startswith("paceline: "))
    assert "ended with exit code 1: no disk" in first
    assert "(a, pid " in first or "(b, pid " in first
    assert all_gone([int(line.split()[-1]) for line in out.splitlines() if "rank" in line])


LOOP = f"""{LIGHT}
import os, torch, paceline
from torch import nn
from torch.utils.data import TensorDataset
model = nn.Linear(3, 2)
x = torch.randn(40, 3)
def evaluate(model):
    print("evaluated with", os.environ["OURS"])
    return 0.25
optimizer = torch.optim.Adam(model.parameters())
pace = paceline.join(model, optimizer, scheme="asp", evaluate=evaluate)
for batch, _ in pace.batches(TensorDataset(x, x), 10, epochs=5):
    model(batch).square().mean().backward()
    pace.step()
pace.close()
"""


def test_a_script_is_evaluated_and_saved_on_this_machine(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(LOOP)
    beside = ["--eval-every", "0.05", "--checkpoint-every", "0.05", "--out", "run", "--tls", "on", "--env", "OURS=1"]
    code, out, err = launch("a\n", "-i", "127.0.0.1", *beside, sys.executable, "s.py")
    assert code == 0, err
    assert "[evaluator] evaluated with 1\n" in out
    assert "accuracy 0.250" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["samples"], summary["test_accuracy"]) == (200, 0.25)
    assert list((tmp_path / "run" / "checkpoints").glob("0*/manifest.json"))
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("hosts", "options", "wanted"),
    [
        (
            "a\nb",
            ["--python", "/no/python", "python", "s.py"],
            "a, b: env: '/no/python': No such file or directory; name",
        ),
        ("a folder=/no/folder\nb python=/no/python", ["python", "s.py"], "2 hosts cannot take part:\n  a: "),
        ("a\nb", ["no-program"], "a, b: no-program: no such program in "),
        ("a slots=2", ["-n", "3", "python", "s.py"], "3 workers and 2 slots in the hosts file: give -n 2"),
        ("a slot=2", ["python", "s.py"], "hosts, line 1: unknown 'slot=2'; did you mean 'slots'"),
        ("a", ["--env", "NOT_SET", "python", "s.py"], "--env NOT_SET: it is not set here"),
        ("a", ["--launcher", "local", "python", "s.py"], "--launcher local is this machine"),
        ("a", ["paceline", "race"], "`paceline train` can be launched"),
        ("a", ["--bind", "10.0.0.1", "--tls", "off", "python", "s.py"], "--bind 10.0.0.1 without TLS"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: str, options: list[str], wanted: str
) -> None:
    (tmp_path / "hosts").write_text(hosts)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{put_ssh(tmp_path)}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", ROOT)
    interface = [] if "--bind" in options else ["-i", "127.0.0.1"]
    with pytest.raises(ConfigError) as caught:
        main(["-H", "hosts", "--env", "PYTHONPATH", *interface, *options])
    assert wanted in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_host_with_another_version_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = "import sys, paceline; paceline.__version__ = '0.0.9'; from paceline.launch.remote import agent; "
    older += "agent.main([])"
    (tmp_path / "older").write_text(f"#!/bin/sh\nexec {sys.executable} -c {shlex.quote(older)}\n")
    (tmp_path / "older").chmod(0o755)
    (tmp_path / "hosts").write_text(f"a\nb python={tmp_path}/older\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{put_ssh(tmp_path)}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", ROOT)
    with pytest.raises(ConfigError, match=f"^b: has Paceline 0.0.9, and {__version__} is here; install the same$"):
        main(["-H", "hosts", "--env", "PYTHONPATH", "-i", "127.0.0.1", "python", "-c", ""])
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_shows_what_would_be_executed_where_and_does_nothing(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "s.py").touch()
    options = [
        "-i",
        "127.0.0.1",
        "-s",
        "2",
        "--dry-run",
        "--sync-dir",
        "/srv/it's",
        "--python",
        "/opt/p",
        "python",
        "s.py",
    ]
    code, out, _ = launch("a:2222 user=ada\n[fd00::7] role=server\n", *options)
    assert code == 0
    assert "here: coordinator; listens on 127.0.0.1 (no TLS)" in out
    assert "a:2222: worker 0\n" in out
    assert "fd00::7: server 0, server 1\n" in out
    assert "-p 2222 -l ada -- a " in out
    assert "'[fd00::7]:/srv/it'\"'\"'s/'" in out
    assert out.count("  there: python s.py\n") == 1  # servers are ours
    (tmp_path / "bin" / "ssh").unlink(), (tmp_path / "bin").rmdir()
    out = launch("a\n", "-i", "127.0.0.1", "--eval-every", "5", "--dry-run", "python", "s.py")[1]
    assert out.startswith("here: coordinator, evaluator; listens on 127.0.0.1 (no TLS)\n  python s.py\na: ")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("launcher", ["ssh", "mpi"])
@pytest.mark.parametrize("programs", [True, False])
def test_a_dry_run_looks_up_no_name_and_needs_no_ssh(
    launcher: str, programs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise AssertionError("a name was looked up")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    if not programs:
        monkeypatch.setenv("PATH", str(tmp_path))
    Path("hosts").write_text("here.example.org slots=2\ngpu.example.org slots=4 gpus=0,1,2,3 group=fast\n")
    words = ["--launcher", launcher, "-H", "hosts", "--dry-run", "paceline", "train", "--scheme", "gsp"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "its address towards here.example.org" in out
    if launcher == "ssh":
        assert "(TLS)" in out
        assert "gpu.example.org: worker 2, worker 3, worker 4, worker 5\n" in out


def test_without_an_ssh_client_the_way_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="--launcher ssh needs an ssh client"):
        Ssh(folder="/f", python="python").address_of(HostEntry(name="a"))


def test_a_folder_is_sent_with_the_limits_in_time_of_a_login() -> None:
    command = Ssh(folder="/f", python="python").rsync(HostEntry(name="a"), [])
    assert "--timeout=60" in command
    assert {"ConnectTimeout=10", "ServerAliveInterval=5"} <= {*command[command.index("-e") + 1].split()}
