"""Starts agents by Open MPI's `mpirun`: on this machine, on the hosts of a file, or where a batch system put the job.

mpirun only starts them: parties talk over Paceline's own connections. When one of its processes dies by a signal
mpirun ends all others, so a run under it ends with its first lost host. MPICH's mpiexec has other options.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.launch.remote.hostfile import HostEntry

NAME = "mpi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """Describes an mpirun. `hostfile`: in Open MPI's own format; `extra`: more options for mpirun."""

    hostfile: str = ""
    extra: tuple[str, ...] = ()
    name: str = NAME
    hint: str = "install Open MPI (openmpi-bin), or load its module"

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        """Returns the command that starts `agents` agents."""
        flags = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        flags += ["--oversubscribe", "--bind-to", "none"]  # an agent starts several processes, which share its cores
        flags += ["--hostfile", self.hostfile] if self.hostfile else []
        return ["mpirun", *flags, "-n", str(agents), *self.extra, *agent]

    def cancel(self) -> list[str]:
        """Returns []: mpirun ends its processes when it ends."""
        return []


def write_hostfile(hosts: Sequence[HostEntry], path: Path) -> None:
    """Writes the hosts as mpirun reads them: a name and its slots a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{host.name} slots={host.slots or 1}\n" for host in hosts), encoding="utf-8")
