"""Parties that somebody else starts find who leads, take places, and are missed when they go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.free_port import free_port
from tests.launch.forked_cli import Warm
from tests.launch.process_tree import LIGHT

SCRIPT = f"""{LIGHT}
import torch, paceline
from torch import nn
torch.set_num_threads(1)
model = nn.Linear(3, 2)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="bsp")
for _ in range(6):
    model(torch.randn(4, 3)).square().sum().backward()
    pace.step(4)
pace.close()
print("rank", pace.rank, "did", pace.steps, "of", pace.plan.workers, flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_a_job_of_mpich_is_named_by_its_proxy_whatever_shell_is_between() -> None:
    report = (
        "from paceline.launch.external import rendezvous; from paceline.launch.external.detect import ExternalProcess; "
    )
    report += "own = ExternalProcess(starter='mpich', kind='worker', number=0, workers=2, servers=1, host='', port=0, "
    report += "job='mpich'); print(rendezvous.with_job(own).job)"
    rank = {**os.environ, "PMI_RANK": "0"}
    said = subprocess.check_output(["sh", "-c", '"$@"; exit', "sh", sys.executable, "-c", report], env=rank, text=True)
    assert said == f"mpich-{os.getpid()}\n"


# ---- processes -------------------------------------------------------------------------------------------
def started(
    warm: Warm,
    folder: Path,
    *environments: dict[str, str],
    paceline: Sequence[str] = (),
    script: str = SCRIPT,
    codes: Sequence[int] = (),
) -> list[str]:
    """What the script, or `paceline` with these words, says under each of these; all end well, or with `codes`."""
    (folder / "train.py").write_text(script)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "OMPI_", "SLURM_", "PACELINE_"))}
    told = [{**clean, "TMPDIR": str(folder), **environment} for environment in environments]
    if paceline:
        processes = [warm.paceline(*paceline, folder=folder, environment=one) for one in told]
    else:
        processes = [warm.python(folder / "train.py", folder=folder, environment=one) for one in told]
    try:
        said = ["".join(process.communicate(timeout=150)) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == list(codes or [0] * len(processes)), said
    return said


def test_a_manual_start_of_mxnet_role_by_role_trains(warm: Warm, tmp_path: Path) -> None:
    """mxnet.md: 'set 5 env vars per process and run the same command'."""
    root = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(free_port())}
    job = {**root, "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1"}
    roles = ("worker", "server", "worker", "scheduler")
    one, server, other, scheduler = started(warm, tmp_path, *({**job, "DMLC_ROLE": role} for role in roles))
    assert sorted([one, other]) == ["rank 0 did 6 of 2\n", "rank 1 did 6 of 2\n"]
    assert server == ""
    assert "bsp: " in scheduler
    assert "48 samples; steps by worker: 0: 6, 1: 6" in scheduler


def test_paceline_train_takes_part_by_our_own_names(warm: Warm, tmp_path: Path) -> None:
    job = {"PACELINE_LEADER": f"127.0.0.1:{free_port()}", "PACELINE_WORKERS": "1", "PACELINE_SERVERS": "1"}
    train = ["train", "--scheme", "asp", "--epochs", "1"]
    roles = ({**job, "PACELINE_ROLE": role} for role in ("scheduler", "worker"))
    leader, worker = started(warm, tmp_path, *roles, paceline=train)
    assert worker == ""
    assert "(ended by: epochs)" in leader
    assert list((tmp_path / "runs").glob("*-asp/model.safetensors"))


def test_ranks_that_mpi_gives_train_and_rank_0_brings_the_rest(warm: Warm, tmp_path: Path) -> None:
    names = ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")

    def rank(number: int) -> dict[str, str]:
        values = dict(zip(names, (number, number, 2, 2), strict=True))
        return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in values.items()}

    first, second = started(warm, tmp_path, rank(0), rank(1))
    assert second == "rank 1 did 6 of 2\n"
    assert "rank 0 did 6 of 2\n" in first
    assert "steps by worker: 0: 6, 1: 6" in first
    assert list((tmp_path / "runs").glob("*-mpi/summary.json"))


def test_a_script_that_ends_with_a_bad_exit_code_among_others_is_lost_by_that_code(warm: Warm, tmp_path: Path) -> None:
    lines = SCRIPT.replace("range(6)", "range(3000)")
    lines = lines.replace("    pace.step(4)", "    pace.step(4)\n    if pace.rank == 1: import sys; sys.exit(3)")
    ranks = ({"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"} for rank in "01")
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "x"}
    said = started(warm, tmp_path, *({**job, **rank} for rank in ranks), script=lines, codes=[0, 3])
    assert "rank 0 did 3000 of 2" in said[0]
    (trace,) = tmp_path.glob("runs/*/trace.jsonl")
    assert '"reason":"worker 1: its script ended with exit code 3; 1 of 2 continue"' in trace.read_text()
