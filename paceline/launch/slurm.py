"""Agents by Slurm's `srun`: inside an allocation (sbatch, salloc) on its nodes, or in one that srun asks for itself.

A node that fails takes its agents with it and no others (`--kill-on-bad-exit=0`, `--no-kill`): the run goes on without
the workers there. What Slurm sends before it takes a job away, SIGTERM, reaches the launcher when that runs inside the
job, and ends the run in order, with what there is.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.launch.hosts import Host

NAME = "slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """`hosts`: only these nodes; `inside`: within an allocation; `extra`: more options for srun."""

    hosts: tuple[Host, ...] = ()
    inside: bool = False
    extra: tuple[str, ...] = ()
    name: str = NAME
    hint: str = "run it where Slurm's commands are, on a login node"

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        flags = [f"--ntasks={agents}", "--kill-on-bad-exit=0", "--input=none", "--mpi=none"]
        flags += ["--overlap"] if self.inside else ["--no-kill", "--job-name=paceline"]
        flags += [f"--nodelist={','.join(host.name for host in self.hosts)}"] if self.hosts else []
        return ["srun", *flags, *self.extra, *agent]

    def cancel(self) -> list[str]:
        return []  # srun gives its allocation back when it ends


def inside(environment: Mapping[str, str]) -> bool:
    return "SLURM_JOB_ID" in environment


def script(command: Sequence[str], workers: int) -> str:
    """A file for `sbatch`: what `paceline launch` was told, inside a job of its own."""
    return f"""#!/bin/bash
#SBATCH --job-name=paceline
#SBATCH --ntasks={workers}
#SBATCH --output=paceline-%j.log
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
# more as your cluster wants it: --partition=..., --time=..., --gpus-per-task=1

{shlex.join(command)} &
trap 'kill -TERM $!' TERM   # a minute before the time is over: the run ends in order, and leaves a checkpoint
wait $!; wait $!
"""
