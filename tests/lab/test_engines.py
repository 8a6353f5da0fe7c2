"""Engines for real, over hosts of the lab: each trains by one command, and leaves nobody when it is interrupted."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import ray_cluster, sge, slurm
from tests.lab.lab import INSTALL, Lab, missing, opened
from tests.lab.launched import Launched
from tests.launch.processes import all_gone, descendants, within

WHY_NOT = missing()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.timeout(400)]
TRAIN = ["paceline", "train", "--data", "digits", "--scheme", "gsp", "--out", "run"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield from opened(tmp_path, 2)


def trains(lab: Lab, launched: Launched) -> None:
    assert launched.ends(150) == 0, launched.said
    assert "security: TLS 1.3 on 10.77.0.1" in launched.said
    summary = json.loads((lab.folder / "run" / "summary.json").read_text())
    assert summary["samples"] > 0
    trace = [json.loads(line) for line in (lab.folder / "run" / "trace.jsonl").read_text().splitlines()]
    assert {row["host"] for row in trace if "host" in row and row.get("party", "").startswith("worker")} == {"h1", "h2"}


def ends_in_order(lab: Lab, launched: Launched, quiet: list[str]) -> None:
    """After Ctrl-C nobody is left on any host but those who were there before."""
    assert launched.says("accuracy", 150), launched.said
    family = [launched.process.pid, *descendants(launched.process.pid)]
    launched.process.send_signal(signal.SIGINT)
    assert launched.ends(30) == 130, launched.said
    assert all_gone(family)
    for name in lab.names:
        assert within(10, lambda name=name: not left(lab, name, quiet)), left(lab, name, quiet)  # type: ignore[misc]


def left(lab: Lab, name: str, quiet: list[str]) -> list[str]:
    return [line for line in lab.running(name) if not any(daemon in line for daemon in quiet)]


@pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing())
def test_slurm_trains_on_its_nodes_and_a_run_that_is_interrupted_leaves_nobody(lab: Lab) -> None:
    with slurm.running(lab) as found:
        by_slurm = ["--launcher", "slurm", "-n", "2", "--launcher-args", "-N 2"]
        trains(lab, Launched(lab, *by_slurm, *TRAIN, "--seconds", "2", **found))
        shutil.rmtree(lab.folder / "run")
        endless = Launched(lab, *by_slurm, *TRAIN, "--epochs", "0", "--seconds", "600", **found)
        ends_in_order(lab, endless, [*slurm.DAEMONS])


@pytest.mark.skipif(bool(sge.missing()), reason=sge.missing())
def test_grid_engine_trains_on_its_hosts_and_a_run_that_is_interrupted_leaves_nobody(lab: Lab) -> None:
    with sge.running(lab) as found:
        by_sge = ["--launcher", "sge", "-n", "2"]
        trains(lab, Launched(lab, *by_sge, *TRAIN, "--seconds", "2", **found))
        shutil.rmtree(lab.folder / "run")
        endless = Launched(lab, *by_sge, *TRAIN, "--epochs", "0", "--seconds", "600", **found)
        ends_in_order(lab, endless, [*sge.DAEMONS])


@pytest.mark.skipif(bool(ray_cluster.missing()), reason=ray_cluster.missing())
def test_ray_trains_on_its_nodes_and_a_run_that_is_interrupted_leaves_nobody(lab: Lab) -> None:
    with ray_cluster.running(lab) as address:
        by_ray = ["--launcher", "ray", "-n", "2", "--launcher-args", f"address={address}"]
        quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
        trains(lab, Launched(lab, *by_ray, *TRAIN, "--seconds", "2", **quiet))
        shutil.rmtree(lab.folder / "run")
        endless = Launched(lab, *by_ray, *TRAIN, "--epochs", "0", "--seconds", "600", **quiet)
        ends_in_order(lab, endless, [*ray_cluster.QUIET])


@pytest.mark.skipif(shutil.which("mpirun") is None, reason=f"no mpirun; {INSTALL}")
def test_mpi_trains_on_hosts_of_a_file_and_a_run_that_is_interrupted_leaves_nobody(lab: Lab) -> None:
    (lab.folder / "hosts").write_text("h1\nh2\n")
    network = "--mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24"
    login = f"--mca plm_rsh_agent 'ssh -F {lab.folder / 'ssh_config'}'"
    by_mpi = ["--launcher", "mpi", "-H", "hosts", "-i", "10.77.0.1", "--launcher-args", f"{network} {login}"]
    trains(lab, Launched(lab, *by_mpi, *TRAIN, "--seconds", "2"))
    shutil.rmtree(lab.folder / "run")
    ends_in_order(lab, Launched(lab, *by_mpi, *TRAIN, "--epochs", "0", "--seconds", "600"), [])
