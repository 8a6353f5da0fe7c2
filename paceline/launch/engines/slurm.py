"""Agents by Slurm's `srun`: inside an allocation (sbatch, salloc) on its nodes, or in one that srun asks for itself.

A node that fails takes its agents with it and no others (`--kill-on-bad-exit=0`, `--no-kill`): the run goes on without
the workers there. What Slurm says before it takes a job away is heard:

    SIGTERM, to everybody, with KillWait (30 s) to go: preemption, `scontrol requeue`, `scancel`, the end of the time.
        The run ends in order and leaves a checkpoint. Whether the job comes back is Slurm's affair.
    SIGUSR1, to a launcher that is the batch script (`#SBATCH --signal=B:USR1@90`, and exec): the time is nearly over.
        The same, and the launcher puts the job back into the queue.

A job that has come back goes on from the newest checkpoint under its --out. A heterogeneous job (`#SBATCH hetjob`) has
its servers on group 0, where the launcher is, and its workers on the other groups.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.core.errors import ConfigError
from paceline.launch.remote.hostfile import HostEntry

NAME = "slurm"
HETJOB = "hetjob"
"""The word by which Slurm separates the parts of a heterogeneous job."""
TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM has ended."""
NOTICE_SECONDS = 90
REQUEUE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """Describes an srun.

    hosts   only these nodes; () for any
    inside  it runs within an allocation
    tasks   agents of each group of a heterogeneous job, those of group 0 for servers only; () for any other job
    extra   more options for srun
    """

    hosts: tuple[HostEntry, ...] = ()
    inside: bool = False
    extra: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()
    name: str = NAME
    hint: str = "run it where Slurm's commands are, on a login node"

    @property
    def apart(self) -> int:
        """Returns how many agents, the first ones, are for servers only."""
        return self.tasks[0] if self.tasks else 0

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        """Returns the command that starts `agents` agents."""
        flags = ["--kill-on-bad-exit=0", "--input=none", "--mpi=none"]
        flags += ["--overlap"] if self.inside else ["--no-kill", "--job-name=paceline"]
        flags += [f"--nodelist={','.join(host.name for host in self.hosts)}"] if self.hosts else []
        words = ["srun"]
        for place in self._places(agents):
            words += [":"] if len(words) > 1 else []
            words += [*place, *flags, *self.extra, *agent]
        return words

    def cancel(self) -> list[str]:
        """Returns []: srun gives its allocation back when it ends."""
        return []  # srun gives its allocation back when it ends

    def _places(self, agents: int) -> Iterator[list[str]]:
        """Yields the options that place agents, for each group of the job."""
        if not self.tasks:
            yield [f"--ntasks={agents}"]
        for group, tasks in enumerate(self.tasks):
            spread = [f"--nodes={tasks}"] if group == 0 else []  # a node each
            yield from [[f"--het-group={group}", f"--ntasks={tasks}", *spread]] if tasks else []


def inside(environment: Mapping[str, str]) -> bool:
    """Returns True within an allocation."""
    return "SLURM_JOB_ID" in environment


def has_come_back(environment: Mapping[str, str]) -> bool:
    """Returns True if this job was taken away before, and queued again."""
    return environment.get("SLURM_RESTART_COUNT", "0") != "0"


def in_groups(engine: Slurm, environment: Mapping[str, str], workers: int, servers: int) -> Slurm:
    """Returns `engine`, spread over the groups of this job, if it has any. Raises ConfigError without room."""
    count = int(environment.get("SLURM_HET_SIZE", "1"))
    if count < 2:
        return engine
    room = [_room(environment, group) for group in range(1, count)]
    left, tasks = workers, [min(servers, int(environment.get("SLURM_JOB_NUM_NODES_HET_GROUP_0", "1")))]
    for most in room:
        tasks.append(min(left, most))
        left -= tasks[-1]
    if left:
        raise ConfigError(
            f"{workers} workers, and room for {sum(room)} in the groups of this job after the first, which is for "
            f"servers: give -n {sum(room)}, or more --ntasks after `#SBATCH hetjob`"
        )
    return replace(engine, tasks=tuple(tasks))


def _room(environment: Mapping[str, str], group: int) -> int:
    """Returns how many tasks fit into a group."""
    names = (f"SLURM_{what}_HET_GROUP_{group}" for what in ("NTASKS", "NPROCS", "JOB_NUM_NODES"))
    return int(next((environment[name] for name in names if name in environment), "1"))


def until_notice(environment: Mapping[str, str], run: Callable[[], int]) -> int:
    """Runs `run`, which SIGUSR1 ends in order, as SIGTERM does; after that the job is queued again. Returns the exit
    code."""
    noticed = False

    def notice(*_: object) -> None:
        """Passes the first notice on as SIGTERM, which begins the orderly end of the run; others change nothing."""
        nonlocal noticed
        if not noticed:
            noticed = True
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGUSR1, notice)
    try:
        code = run()
    except SystemExit as end:  # it had not begun
        code = end.code if isinstance(end.code, int) else 1
    finally:
        signal.signal(signal.SIGUSR1, before)
    if noticed and code == TERMINATED:
        _requeue(environment["SLURM_JOB_ID"])
    return code


def _requeue(job: str) -> None:
    """Queues the job again; a failure is printed, since the run has been saved in any case."""
    print(f"paceline: the time of job {job} is nearly over: it is queued again", file=sys.stderr, flush=True)
    command = ["scontrol", "requeue", job]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=REQUEUE_SECONDS)
        said, failed = done.stderr.strip(), done.returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        said, failed = str(error), True
    if failed:
        print(f"paceline: {shlex.join(command)}: {said}; `#SBATCH --requeue` allows it", file=sys.stderr, flush=True)


def script(
    command: Sequence[str], *, workers: int, servers: int, settings: Sequence[str], resumes: bool, placed: bool
) -> str:
    """Returns a file for `sbatch` that runs `command` inside a job of its own.

    settings: words for sbatch, such as `--partition=gpu`. With `hetjob` among them servers have nodes of their own, for
    which all before it is; the rest is for the workers'. resumes: it keeps checkpoints, so it goes on when it is
    requeued. placed: it says by --out where the run is left.

    Otherwise each job has a folder of its own; what cannot go on, each of its incarnations.
    """
    asked = [f"--ntasks={workers}", *settings]
    if HETJOB in settings:
        at = settings.index(HETJOB)
        asked = [f"--ntasks={servers}", "--ntasks-per-node=1", *settings[:at]]
        asked += [HETJOB, f"--ntasks={workers}", *settings[at + 1 :]]
    lines = "".join(f"\n#SBATCH {word}" if word[0] == "-" or word == HETJOB else f" {word}" for word in asked if word)
    words = shlex.join(command)
    if not placed:
        folder = "runs/slurm-$SLURM_JOB_ID" + ("" if resumes else "-${SLURM_RESTART_COUNT:-0}")
        words = words.replace("paceline launch", f"paceline launch --out {folder}", 1)
    return TEMPLATE.format(asked=lines, words=words, seconds=NOTICE_SECONDS)


TEMPLATE = """#!/bin/bash
#SBATCH --job-name=paceline
#SBATCH --output=paceline-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@{seconds}{asked}
# more as your cluster wants it: --partition=..., --time=..., --gpus-per-task=1

# Preempted, or {seconds} s before its time is over, the run ends in order; the job is queued again and goes on.
# exec: that signal is sent to this script, and the launcher understands it.
exec {words}
"""
