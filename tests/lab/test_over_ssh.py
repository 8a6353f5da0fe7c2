"""`paceline launch --launcher ssh` over three hosts with an sshd each: unlike, and mortal."""

from __future__ import annotations

import json
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.sim import load
from tests.lab.lab import CPU, Lab, missing, opened
from tests.lab.launch_run import Launched
from tests.launch.process_tree import LIGHT, all_gone, descendants, within

WHY_NOT = missing()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
HOSTS = "h1 slots=2 group=fast\nh2 group=slow role=worker\nh3 group=slow\n"


def over_ssh(lab: Lab, *words: str) -> Launched:
    (lab.folder / "hosts").write_text(HOSTS)
    return Launched(lab, "-H", "hosts", "--launcher", "ssh", "--ssh-config", "ssh_config", *words)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield from opened(tmp_path, 3)


@pytest.mark.skipif(not (CPU / "cpu.cfs_quota_us").exists(), reason="slow hosts need cgroup v1's CPU quota")
def test_a_run_over_unlike_hosts_survives_the_death_of_one_and_leaves_nobody_anywhere(lab: Lab) -> None:
    lab.slow("h2", 0.25)
    lab.throttle("h3", "50mbit")
    train = ["paceline", "train", "--data", "digits", "--scheme", "gsp", "--epochs", "0", "--seconds", "600"]
    train += ["--snapshot-every", "2", "--eval-every", "1"]
    launched = over_ssh(lab, "-n", "4", "-s", "2", *train, "--out", "run")
    process = launched.process
    assert launched.says("accuracy", 150), launched.said
    assert within(30, lambda: launched.said.count("accuracy") > 1), launched.said  # there is a snapshot by now
    assert "security: TLS 1.3 on 10.77.0.1" in launched.said
    family = [process.pid, *descendants(process.pid)]
    lab.die("h3")
    assert launched.says("worker 3 (h3, pid", 30), launched.said
    assert launched.says("3 of 4 continue", 30), launched.said
    assert launched.says("server 1 (h3, pid", 30), launched.said
    assert launched.says("was replaced", 30), launched.said  # on a host that is left
    before = launched.said.count("accuracy")
    assert within(30, lambda: launched.said.count("accuracy") > before), launched.said  # they go on
    process.send_signal(signal.SIGINT)
    assert launched.ends(60) == 130, launched.said
    assert all_gone(family)
    for name in ("h1", "h2"):
        assert within(30, lambda name=name: not lab.running(name)), (name, lab.running(name))  # type: ignore[misc]
    summary = json.loads((lab.folder / "run" / "summary.json").read_text())
    assert len(summary["workers"]) == 4
    assert summary["samples"] > 0
    trace = [json.loads(line) for line in (lab.folder / "run" / "trace.jsonl").read_text().splitlines()]
    began = {row["party"]: row["host"] for row in reversed(trace) if "host" in row}  # the first of each stays
    assert [began[f"worker {rank}"] for rank in range(4)] == ["h1", "h1", "h2", "h3"]
    gone = {row["event"]: row["at"] for row in trace if row.get("party") == "server 1" and "event" in row}
    assert gone["replaced"] - gone["lost"] < 10  # it called nobody on the lost host, which takes 10 s each


def test_what_is_sent_is_run_where_it_arrives_and_who_cannot_be_reached_is_named(lab: Lab) -> None:
    there = lab.folder.with_name(f"{lab.folder.name}-there")
    (lab.folder / "where.py").write_text(
        "import os; print(os.getcwd(), sorted({'key', 'where.py'} & set(os.listdir()))); raise SystemExit('enough')"
    )
    (lab.folder / "two").write_text("h2\n")
    options = ["-H", "two", "--ssh-config", "ssh_config", "--sync-dir", str(there), "--sync-exclude", "key"]
    launched = Launched(lab, *options, "python", "where.py")
    assert launched.ends(60) == 1
    assert f"[worker 0 (h2)] {there} ['where.py']\n" in launched.said
    assert "ended with exit code 1: enough" in launched.said
    (lab.folder / "two").write_text("h2\n10.77.0.99\nh99\n")
    launched = Launched(lab, "-H", "two", "--ssh-config", "ssh_config", "-i", "10.77.0.0/24", "python", "where.py")
    assert launched.ends(60) == 2
    assert "paceline: 2 hosts cannot take part:\n" in launched.said
    assert "10.77.0.99: ssh: connect to host 10.77.0.99 port 22: " in launched.said
    assert "h99: ssh: Could not resolve hostname h99" in launched.said


def test_a_probe_finds_the_slow_link_by_which_tiers_are_grouped_and_who_cannot_be_reached(lab: Lab) -> None:
    lab.throttle("h3", "50mbit")
    (lab.folder / "hosts").write_text(HOSTS + "10.77.0.99\n")
    options = ["-H", "hosts", "--ssh-config", "ssh_config", "-i", "10.77.0.0/24", "--steps", "10", "-s", "2"]
    launched = Launched(lab, *options, verb="probe")
    assert launched.ends(120) == 0, launched.said
    assert "10.77.0.99 is left out: ssh: connect to host 10.77.0.99" in launched.said
    cluster = load(lab.folder / "mine.toml")
    assert [(host.name, host.workers, host.servers) for host in cluster.hosts] == [
        ("h1", 2, 1),
        ("h2", 1, 0),
        ("h3", 1, 1),
    ]
    near, far = cluster.hosts[0].site, cluster.hosts[2].site
    assert cluster.hosts[1].site == near != far
    (link,) = cluster.links
    assert link.bandwidth_gbps < 0.1 < cluster.network.bandwidth_gbps
    assert main(["advise", "--cluster", str(lab.folder / "mine.toml"), "--parameters", "1000", "--schemes", "bsp"]) == 0
    (lab.folder / "hosts").write_text(HOSTS)
    train = ["paceline", "train", "--data", "digits", "--scheme", "tiers", "--tiers.groups", "links:mine.toml"]
    launched = Launched(lab, *options[:6], "--out", "run", *train, "--epochs", "0", "--steps", "60", "--step-ms", "5")
    assert launched.ends(90) == 0, launched.said
    assert tomllib.loads((lab.folder / "run" / "config.toml").read_text())["tiers"]["groups"] == "0,1,2;3"
    summary = json.loads((lab.folder / "run" / "summary.json").read_text())
    assert [worker["steps"] for worker in summary["workers"]] == [60] * 4


def test_a_race_of_a_script_takes_its_schemes_to_all_hosts(lab: Lab) -> None:
    (lab.folder / "hosts").write_text(HOSTS)
    (lab.folder / "train.py").write_text(
        f"{LIGHT}import torch, paceline\n"
        "model = torch.nn.Linear(3, 2)\n"
        "pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme='esync')\n"
        "while not pace.over:\n"
        "    model(torch.randn(4, 3)).square().sum().backward()\n"
        "    pace.step(4)\n"
        "    pace.report(loss=1.0)\n"
    )
    options = ["-H", "hosts", "--ssh-config", "ssh_config", "-i", "10.77.0.0/24", "--schemes", "bsp,asp"]
    words = [*options, "--samples", "400", "--out", "race", "--", "python", "train.py"]
    launched = Launched(lab, *words, verb="race")
    assert launched.ends(120) == 0, launched.said
    summaries = json.loads((lab.folder / "race" / "race.json").read_text())
    assert [(s["scheme"], len(s["workers"]), s["test_loss"]) for s in summaries] == [("bsp", 4, 1.0), ("asp", 4, 1.0)]
    assert [worker["host"] for worker in summaries[1]["workers"]] == ["h1", "h1", "h2", "h3"]
