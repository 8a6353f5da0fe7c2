"""What starters tell a process of its place, name by name."""

from __future__ import annotations

import pytest

from paceline.core.errors import ConfigError
from paceline.launch.external.detect import detect_external

MXNET = {
    "DMLC_ROLE": "worker",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9091",
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_PORT": "29500"}


def words(text: str) -> dict[str, str]:
    return dict(word.split("=") for word in text.split())


@pytest.mark.parametrize(
    ("environment", "rank", "count", "here"),
    [
        ("RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", 1, 4, 1),
        ("SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=2 SLURM_STEP_NUM_NODES=1", 2, 3, 2),
        (
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2",
            0,
            2,
            0,
        ),
        ("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", 1, 2, 1),
    ],
)
def test_a_rank_on_one_host_is_found_under_each_starters_names(
    environment: str, rank: int, count: int, here: int
) -> None:
    external = detect_external(words(environment))
    assert external is not None
    assert (external.kind, external.number, external.workers, external.slot, external.host) == (
        "worker",
        rank,
        count,
        here,
        "",
    )
    assert external.leads == (rank == 0)


def test_tasks_of_grid_engine_count_from_1_and_say_nothing_of_hosts() -> None:
    tasks = words("SGE_TASK_ID=1 SGE_TASK_LAST=3 JOB_ID=7")
    assert detect_external(tasks) is None  # as many runs, until somebody says who leads
    external = detect_external({**tasks, "MASTER_ADDR": "h1"})
    assert external is not None
    assert (external.number, external.host, external.port, external.job) == (0, "h1", 29400, "sge-7")
    assert detect_external(words("SGE_TASK_ID=undefined SGE_TASK_LAST=undefined")) is None  # a job that is no array


def test_ranks_that_may_be_on_several_hosts_have_to_be_told_where_rank_0_is() -> None:
    with pytest.raises(ConfigError, match="set MASTER_ADDR to the host of rank 0"):
        detect_external(words("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2"))


def test_over_several_hosts_rank_0_is_called_beside_the_port_that_torchrun_has() -> None:
    several = {**TORCHRUN, "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "h1"}
    external = detect_external(several)
    assert external is not None
    assert (external.host, external.port) == ("h1", 29501)
    other = detect_external({**several, "PACELINE_PORT": "4000", "PACELINE_SERVERS": "2"})
    assert other is not None
    assert (other.port, other.servers) == (4000, 2)


def test_who_is_alone_or_started_by_paceline_is_left_in_peace() -> None:
    assert detect_external({}) is None
    assert detect_external({**TORCHRUN, "WORLD_SIZE": "1"}) is None
    assert detect_external({**TORCHRUN, **MXNET, "PACELINE_COORDINATOR": "127.0.0.1:1"}) is None
    # A batch script of Slurm has a rank, and is no step of several.
    assert detect_external(words("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=3")) is None


def test_our_own_names_make_who_leads_and_workers() -> None:
    job = words("PACELINE_ROLE=worker PACELINE_LEADER=fd00::7:4000 PACELINE_WORKERS=3 PACELINE_SERVERS=2")
    external, leader = detect_external(job), detect_external({**job, "PACELINE_ROLE": "scheduler"})
    assert external is not None
    assert leader is not None
    assert (external.kind, external.number, external.host, external.port, external.leads) == (
        "worker",
        -1,
        "fd00::7",
        4000,
        False,
    )
    assert (leader.leads, leader.own_servers, leader.servers) == (True, True, 2)
    with pytest.raises(ConfigError, match="PACELINE_LEADER the scheduler's HOST:PORT"):
        detect_external({**job, "PACELINE_LEADER": "h1"})


def test_mxnets_variables_make_a_role() -> None:
    more = {"DMLC_INTERFACE": "eth0", "PS_VERBOSE": "3"}
    external = detect_external({**MXNET, **more})
    assert external is not None
    assert (external.kind, external.number, external.workers, external.servers) == ("worker", -1, 2, 1)
    assert (external.host, external.port, external.interface, external.verbose) == ("127.0.0.1", 9091, "eth0", 2)
    assert not external.leads
    scheduler = detect_external({**MXNET, "DMLC_ROLE": "scheduler"})
    server = detect_external({**MXNET, "DMLC_ROLE": "server", "DMLC_SERVER_ID": "0"})
    assert scheduler is not None
    assert server is not None
    assert scheduler.leads
    assert (server.number, server.leads) == (0, False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"DMLC_ROLE": "boss"}, "DMLC_ROLE=boss: must be scheduler, server or worker"),
        ({"DMLC_PS_ROOT_URI": ""}, "DMLC_ROLE is set, so DMLC_PS_ROOT_URI must be too"),
        ({"DMLC_PS_ROOT_PORT": "x"}, "DMLC_PS_ROOT_PORT=x: must be a whole number"),
        ({"DMLC_PS_ROOT_PORT": "0"}, "DMLC_PS_ROOT_PORT=0: must be a whole number, from 1 to 65535"),
        ({"DMLC_PS_ROOT_PORT": "65536"}, "DMLC_PS_ROOT_PORT=65536: must be a whole number, from 1 to 65535"),
        ({"DMLC_WORKER_ID": "2"}, "DMLC_WORKER_ID=2: must be a whole number, from 0 to 1"),
        ({"DMLC_ROLE": "server", "DMLC_NUM_SERVER": "0"}, "DMLC_NUM_SERVER=0: must be a whole number, 1 or more"),
        ({"DMLC_NUM_WORKER": "0"}, "DMLC_NUM_WORKER=0: must be a whole number, 1 or more"),
    ],
)
def test_what_is_wrong_with_them_is_told(changes: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        detect_external({**MXNET, **changes})


OURS = words("PACELINE_ROLE=worker PACELINE_LEADER=h1:4000 PACELINE_WORKERS=2")
SEVERAL = {**TORCHRUN, "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "h1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({**OURS, "PACELINE_LEADER": "h1:"}, "PACELINE_LEADER the scheduler's HOST:PORT"),
        ({**OURS, "PACELINE_LEADER": "h1:0"}, "PACELINE_LEADER's port=0: must be a whole number, from 1 to 65535"),
        ({**OURS, "PACELINE_LEADER": "h1:99999"}, "PACELINE_LEADER's port=99999: must be a whole number, from 1 to"),
        ({**OURS, "PACELINE_RANK": "7"}, "PACELINE_RANK=7: must be a whole number, from 0 to 1"),
        ({**OURS, "JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX=2: must be a whole number, from 0 to 1"),
        ({**SEVERAL, "RANK": "4"}, "RANK=4: there are 4 processes, by WORLD_SIZE"),
        ({**SEVERAL, "MASTER_PORT": "65535"}, "MASTER_PORT=65535: must be a whole number, from 1 to 65534"),
        ({**SEVERAL, "PACELINE_PORT": "0"}, "PACELINE_PORT=0: must be a whole number, from 1 to 65535"),
    ],
)
def test_numbers_that_cannot_be_are_told_with_the_name_they_came_under(
    environment: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        detect_external(environment)


def test_a_port_that_nobody_calls_is_not_held_against_anybody() -> None:
    here = detect_external({**TORCHRUN, "MASTER_PORT": "65535"})
    behind = detect_external({**SEVERAL, "MASTER_PORT": "65535", "PACELINE_PORT": "65535"})
    assert here is not None
    assert behind is not None
    assert (here.host, behind.port) == ("", 65535)
