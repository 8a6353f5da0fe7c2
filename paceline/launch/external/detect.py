"""Recognises processes that somebody else starts, one by one: what torchrun, Slurm, MPI and Grid Engine tell each of
its number, and what MXNet's and ESync's manuals have one set by hand.

    first that is set                what the process is
    PACELINE_COORDINATOR             started by Paceline: None
    PACELINE_ROLE                    of a template, such as a pod of Kubernetes (`_of_paceline`)
    DMLC_ROLE                        of MXNet's manual starts (`_of_mxnet`)
    rank and count of a STARTER      of torchrun, Slurm, Open MPI, MPICH, Grid Engine (`_of_rank`)
    nothing                          alone: None

It has no side effects: an environment becomes an `ExternalProcess`, or a ConfigError that says what is wrong with
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import ConfigError
from paceline.launch.local.line_messages import LaunchMessage

SCHEDULER, SERVER, WORKER = "scheduler", "server", "worker"
PART = "part-"
"""What the starter of a later part of a run is called by, before the part's number."""
PORT_MAX = 65535
"""The highest port."""
PORT = 29400
"""The leader's port where nobody names one; torchrun, whose rendezvous uses this number, always does."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names the variables by which a starter tells a process its rank, the number of processes, and both for its own
    host.

        first   the number of rank 0
        hosts   how many hosts take part, where that is told; otherwise all are on this one when `count_here` is `count`
        job     variables that no other job has with the same values at the same time
    """

    starter: str
    rank: str
    count: str
    rank_here: str = ""
    count_here: str = ""
    hosts: str = ""
    job: tuple[str, ...] = ()
    first: int = 0


STARTERS = (
    Names(
        "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", job=("MASTER_PORT", "TORCHELASTIC_RUN_ID")
    ),
    Names(
        "slurm",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        hosts="SLURM_STEP_NUM_NODES",
        job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
    Names(
        "mpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        job=("PMIX_NAMESPACE",),
    ),
    Names("mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # whose job nothing names
    Names("sge", "SGE_TASK_ID", "SGE_TASK_LAST", job=("JOB_ID",), first=1),
)
"""Starters in the order in which they are looked for: torchrun may run within Slurm, and its numbers are the finer
ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalProcess:
    """Describes a process that was started by hand, or by somebody who knows nothing of Paceline.

    kind             scheduler, server or worker
    number           its rank or shard; -1 where it is to be given one
    leads            it brings the coordinator, and with `own_servers` the servers, too
    host, port       where it is led from; no host: from this one, found by `job`
    slot             its number among the workers of its host, or -1
    interface        where to listen
    initial_workers  as --initial-workers; 0 where nobody says
    """

    starter: str
    kind: str
    number: int
    workers: int
    servers: int
    host: str
    port: int
    job: str
    slot: int = -1
    leads: bool = False
    own_servers: bool = True
    initial_workers: int = 0
    interface: str = ""
    verbose: int = 0


class LeadRun(LaunchMessage, frozen=True, kw_only=True, tag="lead"):
    """Tells the process that leads the run what to lead; rank 0 writes it to the leader's standard input."""

    process: ExternalProcess
    values: dict[str, dict[str, Any]]
    trains: bool


def detect_external(environment: Mapping[str, str]) -> ExternalProcess | None:
    """Returns how this process was started; None for one that is alone, or was started by Paceline. Raises
    ConfigError."""
    if "PACELINE_COORDINATOR" in environment:
        return None
    if "PACELINE_ROLE" in environment:
        return _of_paceline(environment)
    if "DMLC_ROLE" in environment:
        return _of_mxnet(environment)
    for names in STARTERS:
        if environment.get(names.rank, "").isdecimal() and environment.get(names.count, "").isdecimal():
            return _of_rank(names, environment)
    return None


def _of_rank(names: Names, environment: Mapping[str, str]) -> ExternalProcess | None:
    """Returns a process of a starter that numbers its processes; None if it is the only one.

    Tasks of a Grid Engine array without MASTER_ADDR are as many runs. Raises ConfigError where nobody says who
    leads.
    """
    workers = int(environment[names.count])
    if workers < 2:
        return None
    here = environment.get(names.hosts) == "1" if names.hosts else environment.get(names.count_here) == str(workers)
    host = "" if here else environment.get("MASTER_ADDR", "")
    if not here and not host:
        if names.starter == "sge":  # tasks of an array are as many runs, unless it is said who leads
            return None
        raise ConfigError(
            f"{workers} processes by {names.starter}, maybe on several hosts: set MASTER_ADDR to the host of rank 0"
        )
    number = int(environment[names.rank]) - names.first
    if not 0 <= number < workers:
        raise ConfigError(f"{names.rank}={environment[names.rank]}: there are {workers} processes, by {names.count}")
    return ExternalProcess(
        starter=names.starter,
        kind=WORKER,
        number=number,
        leads=number == 0,
        workers=workers,
        servers=_number(environment, "PACELINE_SERVERS", 1),
        host=host,
        port=_port(names, environment) if host else 0,
        job="-".join([names.starter, *(environment.get(name, "") for name in names.job)]),
        slot=_number(environment, names.rank_here, -1),
        interface=environment.get("PACELINE_BIND", ""),
    )


def _port(names: Names, environment: Mapping[str, str]) -> int:
    """Returns the port at which rank 0 is called on its host."""
    if environment.get("PACELINE_PORT"):
        return _number(environment, "PACELINE_PORT", 0, 1, PORT_MAX)
    above = int(names.starter == "torchrun")  # which listens on MASTER_PORT itself
    return _number(environment, "MASTER_PORT", PORT, 1, PORT_MAX - above) + above


def _of_paceline(environment: Mapping[str, str]) -> ExternalProcess:
    """Returns a process of a template that sets our own names: the scheduler leads with all servers, the others are
    workers."""
    role, leader = environment["PACELINE_ROLE"], environment.get("PACELINE_LEADER", "")
    host, _, port_said = leader.rpartition(":")
    if role not in (SCHEDULER, WORKER) or not port_said or ":" not in leader:
        raise ConfigError("PACELINE_ROLE must be scheduler or worker, and PACELINE_LEADER the scheduler's HOST:PORT")
    port = _number({"PACELINE_LEADER's port": port_said}, "PACELINE_LEADER's port", 0, 1, PORT_MAX)
    workers = _number(environment, "PACELINE_WORKERS", 1, least=1)
    own = "PACELINE_RANK" if environment.get("PACELINE_RANK") else "JOB_COMPLETION_INDEX"
    return ExternalProcess(
        starter="external",
        kind=role,
        leads=role == SCHEDULER,
        number=-1 if role == SCHEDULER else _number(environment, own, -1, most=workers - 1),
        workers=workers,
        servers=_number(environment, "PACELINE_SERVERS", 1),
        initial_workers=_number(environment, "PACELINE_BEGIN_WITH", 0),
        host=host,
        port=port,
        job=f"hand-{port}",
        interface=environment.get("PACELINE_BIND", ""),
    )


def _of_mxnet(environment: Mapping[str, str]) -> ExternalProcess:
    """Returns a process of MXNet's manual starts. Raises ConfigError for a role that is none, or a missing variable."""
    role = environment["DMLC_ROLE"]
    if role not in (SCHEDULER, SERVER, WORKER):
        raise ConfigError(f"DMLC_ROLE={role}: must be scheduler, server or worker")
    for name in ("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"):
        if not environment.get(name):
            raise ConfigError(f"DMLC_ROLE is set, so {name} must be too; docs/launch.md has the table")
    port = _number(environment, "DMLC_PS_ROOT_PORT", 0, 1, PORT_MAX)
    there = {
        WORKER: _number(environment, "DMLC_NUM_WORKER", 1, least=1),
        SERVER: _number(environment, "DMLC_NUM_SERVER", 1, least=int(role == SERVER)),
    }
    return ExternalProcess(
        starter="mxnet",
        kind=role,
        leads=role == SCHEDULER,
        number=-1 if role == SCHEDULER else _number(environment, f"DMLC_{role.upper()}_ID", -1, most=there[role] - 1),
        workers=there[WORKER],
        servers=there[SERVER],
        host=environment["DMLC_PS_ROOT_URI"],
        port=port,
        job=f"mxnet-{port}",
        own_servers=False,
        interface=environment.get("DMLC_NODE_HOST") or environment.get("DMLC_INTERFACE", ""),
        verbose=min(2, _number(environment, "PS_VERBOSE", 0)),
    )


def _number(environment: Mapping[str, str], name: str, default: int, least: int = 0, most: int | None = None) -> int:
    """Returns the number in a variable, `default` where it is not set. Raises ConfigError outside `least` to `most`."""
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{name}={text}: must be a whole number, {bounds}")
    return int(text)
