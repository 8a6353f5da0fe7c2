"""The engines that start runs in a lab, each with what is to be said to `paceline launch` to have it."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.lab import ray_cluster, sge, slurm
from tests.lab.lab import INSTALL, Lab

Words = tuple[list[str], dict[str, str]]
"""Options of `paceline launch`, and its environment."""


@dataclass(frozen=True)
class Engine:
    """missing: why it cannot be had here, or nothing. running: the engine, up over the hosts of a lab.

    quiet: what of its own it leaves running. version: a command that tells it.
    """

    missing: Callable[[], str]
    running: Callable[[Lab], contextlib.AbstractContextManager[Words]]
    quiet: Sequence[str]
    version: Sequence[str]

    def told_version(self) -> str:
        done = subprocess.run([*self.version], capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).strip().splitlines()
        return next((line for line in lines if re.search(r"\d\.\d", line)), "version not told")


@contextmanager
def _ssh(lab: Lab) -> Iterator[Words]:
    (lab.folder / "hosts").write_text("h1\nh2\n")
    yield ["--launcher", "ssh", "-H", "hosts", "--ssh-config", "ssh_config"], {}


@contextmanager
def _mpi(lab: Lab) -> Iterator[Words]:
    (lab.folder / "hosts").write_text("h1\nh2\n")
    network = "--mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24"
    login = f"--mca plm_rsh_agent 'ssh -F {lab.folder / 'ssh_config'}'"
    yield ["--launcher", "mpi", "-H", "hosts", "-i", "10.77.0.1", "--launcher-args", f"{network} {login}"], {}


@contextmanager
def _slurm(lab: Lab) -> Iterator[Words]:
    with slurm.running(lab) as found:
        yield ["--launcher", "slurm", "-n", "2", "--launcher-args", "-N 2"], found


@contextmanager
def _sge(lab: Lab) -> Iterator[Words]:
    with sge.running(lab) as found:
        yield ["--launcher", "sge", "-n", "2"], found


@contextmanager
def _ray(lab: Lab) -> Iterator[Words]:
    with ray_cluster.running(lab) as address:
        quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
        yield ["--launcher", "ray", "-n", "2", "--launcher-args", f"address={address}"], quiet


def _no_mpi() -> str:
    return "" if shutil.which("mpirun") else f"no mpirun; {INSTALL}"


ENGINES = {
    "ssh": Engine(lambda: "", _ssh, (), ("ssh", "-V")),
    "mpi": Engine(_no_mpi, _mpi, (), ("mpirun", "--version")),
    "slurm": Engine(slurm.missing, _slurm, [*slurm.DAEMONS], ("slurmctld", "-V")),
    "sge": Engine(sge.missing, _sge, sge.DAEMONS, sge.VERSION),
    "ray": Engine(
        ray_cluster.missing,
        _ray,
        ray_cluster.QUIET,
        (sys.executable, "-c", "import ray; print('Ray', ray.__version__)"),
    ),
}
