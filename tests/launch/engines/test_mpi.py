"""The command line of mpirun, and its host file."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.launch.engines.mpi import Mpi, write_hostfile
from paceline.launch.remote.hostfile import parse_hosts

AGENT = ["python", "-m", "agent"]


def test_mpirun_gets_a_hostfile_of_its_own_kind(tmp_path: Path) -> None:
    write_hostfile(parse_hosts("gpu1 slots=2 gpus=0,1\ngpu2\n"), tmp_path / "hosts")
    assert (tmp_path / "hosts").read_text() == "gpu1 slots=2\ngpu2 slots=1\n"
    command = Mpi(hostfile="hosts", extra=("--display-map",)).command(3, AGENT)
    assert command[0] == "mpirun"
    assert command[-6:] == ["-n", "3", "--display-map", *AGENT]
    assert "--hostfile" in command
    assert ("--allow-run-as-root" in command) == (os.geteuid() == 0)
