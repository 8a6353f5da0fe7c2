"""`paceline probe`: speeds of devices and links between hosts, in a file that `advise` and `simulate` take."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from paceline.bench.peer_links import PeerLink
from paceline.cli.commands import probe
from paceline.cli.main import main
from paceline.cli.support import probe_runs
from paceline.cli.support.probe_runs import LinkCounts, MeasuredSteps, ThisMachine, ending_after
from paceline.core.errors import ConfigError, PacelineError
from paceline.live.host_info import cores
from paceline.sim import load
from paceline.sim.cluster.measured import MeasuredLink
from tests.cli.conftest import Capture
from tests.launch.fake_ssh import put_ssh
from tests.launch.forked_cli import Warm
from tests.launch.process_tree import LIGHT

ROOT = str(Path(__file__).parents[3])
SCRIPT = f"""{LIGHT}
import torch, paceline
from torch import nn
model = nn.Linear(3, 2)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="asp")
while not pace.over:
    model(torch.randn(4, 3)).square().sum().backward()
    pace.step(4)
pace.close()
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is not about links, which take a run of their own."""
    way = MeasuredLink(a=0, b=1, latency_s=2e-5, gbps=40.0)
    monkeypatch.setattr(probe, "measure_links", lambda *_: [way])


@pytest.mark.usefixtures("no_links")
def test_a_named_model_is_probed_on_this_machine_and_advise_takes_the_file(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_runs, "EXCHANGE_SECONDS", 2.5)
    words = ["-n", "3", "--slowdown", "1,1,3", "--step-ms", "90", "--steps", "12", "--width", "0.1"]
    assert main(["probe", *words]) == 0
    cluster = load("mine.toml")
    fast, _, slow = cluster.seconds_per_step()
    assert 3 * 0.8 < slow / fast < 3 * 1.2
    assert (cluster.workers, cluster.servers) == (3, 1)
    assert cluster.messages is not None
    assert [host.cores for host in cluster.hosts] == [cores()]
    assert all(0 < device.cpu_s < 0.03 for device in cluster.hosts[0].devices)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert [line.split()[:4] for line in out.splitlines()[1:4]] == [["here", str(n), "cpu", "12"] for n in range(3)]
    last = out.splitlines()[-1]
    assert last.startswith("next: paceline advise --cluster mine.toml --parameters ")
    assert last.endswith(" --batch-size 32")
    assert main([*last.split()[2:], "--schemes", "bsp,asp"]) == 0
    assert "Without risk: bsp" in capsys.readouterr().out


@pytest.mark.usefixtures("no_links")
def test_without_servers_or_with_too_short_a_run_the_way_within_the_host_is_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    made = MeasuredSteps(seconds=[[0.01] * 5], devices=["cpu"], batch=32, length=100)
    monkeypatch.setattr(probe, "measure_steps", lambda *_, **__: made)
    monkeypatch.setattr(ThisMachine, "run", lambda *_: None)
    for servers, said in (("0", ""), ("1", "what an exchange costs is not known")):
        assert main(["probe", "-n", "1", "-s", servers]) == 0
        cluster = load("mine.toml")
        assert cluster.messages is None
        assert cluster.network.local_bandwidth_gbps == 40.0
        assert said in capsys.readouterr().err


def test_a_script_is_probed_on_every_host_and_one_that_is_away_is_named(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "hosts").write_text("a slots=2 group=x\nb\naway python=/no/python\n")
    environment = {**os.environ, "PATH": f"{put_ssh(tmp_path)}:{os.environ['PATH']}", "PYTHONPATH": ROOT}
    words = ["-H", "hosts", "-i", "127.0.0.1", "--env", "PYTHONPATH", "-s", "2", "-o", "net.toml"]
    words += ["--slowdown", "1,1,3,9", "--step-ms", "90", "--steps", "12", "--", sys.executable, "train.py"]
    command = warm.paceline("probe", *words, folder=tmp_path, environment=environment)
    out, err = command.communicate(120)
    assert command.returncode == 0, err
    assert "  away is left out: env: '/no/python': No such file or directory" in err
    assert "[3/3] 12 steps of train.py on 3 workers" in err
    cluster = load("net.toml")
    assert [(host.name, host.workers, host.servers) for host in cluster.hosts] == [("a", 2, 1), ("b", 1, 1)]
    fast, _, slow = cluster.seconds_per_step()
    assert 3 * 0.8 < slow / fast < 3 * 1.2
    assert "a - b: " in out
    assert "8 parameters, 4 samples a step" in cluster.about


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize(
    ("script", "seconds", "words"),
    [
        ("raise ValueError('no data here')", "120", r"ended with exit code 1: ValueError: no data here"),
        (
            "import threading; print('loading'); threading.Event().wait(60)",
            "5",
            r"no worker finished a step in the [12] s that were left: give",
        ),
    ],
)
def test_a_script_that_makes_no_step_is_told_of_and_no_file_is_left(script: str, seconds: str, words: str) -> None:
    Path("train.py").write_text(script)
    with pytest.raises(PacelineError, match=words):
        probe.main(["-n", "1", "--seconds", seconds, "--", sys.executable, "train.py"])
    assert not Path("mine.toml").exists()


def test_of_a_link_the_slower_direction_counts_and_what_is_known_in_time() -> None:
    counts = LinkCounts(3)
    for source, target, gbps in ((0, 1, 8.0), (1, 0, 2.0), (2, 0, 4.0), (0, 3, 9.0), (0, 1, 10.0)):
        counts.add(PeerLink(source=source, target=target, latency_s=1e-3, seconds_per_byte=8e-9 / gbps))
    both, one = counts.links()
    assert (both.a, both.b, both.gbps, both.faster_gbps) == (0, 1, pytest.approx(2.0), pytest.approx(10.0))
    assert (one.a, one.b, one.gbps, one.faster_gbps) == (0, 2, pytest.approx(4.0), 0.0)
    assert probe._way(both) == "1 ms one way, 2 Gbit/s, 10 the other way"


def test_what_hangs_is_ended_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_runs, "HANG_SECONDS", 0.0)
    with pytest.raises(PacelineError, match=r"not done within --seconds 0.05, and then hanging"), ending_after(0.05):
        threading.Event().wait(20)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["-n", "2", "--slowdown", "1,2,3", "--step-ms", "9"],
            "--slowdown names 3 workers, and there are 2",
        ),
        (["-n", "2", "--slowdown", "1,3", "-o", "ours.toml"], "--slowdown multiplies --step-ms"),
        (["--model", "lenett"], "did you mean 'lenet'"),
        (["--model", "lenet", "--", sys.executable, "x.py"], "--model: your script says that itself"),
        (["--", "no-such-program"], "no-such-program: no such program"),
        (["python", "train.py"], "your own script stands behind --, as in -- python train.py"),
        (["-H", "nowhere"], "--hosts nowhere: No such file"),
        (["-H", "hosts", "--local"], "--local is this machine"),
        (["--sync-dir", "x"], "--sync-dir is for other machines: name them with --hosts FILE"),
        (["-o", "/no/folder/x.toml"], "not a file in a folder that there is"),
        (["-o", "other.toml"], "other.toml is there and not of this command: name another file with --write"),
        (["--seconds", "1"], "1 is not a number of seconds from 5"),
        (["-n", "0"], "0 is not a whole number from 1"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(words: list[str], says: str) -> None:
    Path("x.py").touch()
    Path("other.toml").write_text("step_s = 1\n")
    Path("ours.toml").write_text('about = "measured by paceline probe: mlp"\n')  # is written over
    with pytest.raises(ConfigError, match=says):
        probe.main(words)
