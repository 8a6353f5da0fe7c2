"""Processes of `paceline launch` that join again: another model, another scheme, a retry after an exception."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.launch.next_part import RunPart
from paceline.runtime.spec.process_spec import ProcessSpec
from tests.launch.forked_cli import Command, Warm
from tests.launch.process_tree import LIGHT, all_gone, descendants

SCRIPT = f"""{LIGHT}
import os, signal, threading, torch, paceline
from torch import nn

data = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randn(48, 1))

def train(model, parameters, batch, scheme="bsp", kill=-1, most=48):
    pace = paceline.join(model, torch.optim.SGD(parameters, lr=0.1), scheme=scheme)
    for x, y in pace.batches(data, batch):
        if len(x) > most:
            raise RuntimeError("out of memory")
        nn.functional.mse_loss(model(x), y).backward()
        pace.step()
        if pace.rank == kill:
            os.kill(os.getpid(), signal.SIGKILL)
    pace.close()
    print("trained", pace.rank, "of", pace.workers, "steps", pace.steps, "total", pace.total_samples)
    return pace

model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
"""

Launch = Callable[..., tuple[int, str, Path]]


@pytest.fixture
def launch(warm: Warm, tmp_path: Path) -> Iterator[Launch]:
    """Runs a script with these lines to its end: exit code, output, folder of the run."""
    started: list[Command] = []

    def run(lines: str, *options: str, workers: int = 2) -> tuple[int, str, Path]:
        script, out = tmp_path / "script.py", tmp_path / "run"
        script.write_text(SCRIPT + lines)
        process = warm.paceline("launch", "-n", str(workers), "--out", str(out), *options, sys.executable, str(script))
        started.append(process)
        said, _ = process.communicate(timeout=90)
        return process.returncode, said, out

    yield run
    for process in started:
        family = [process.pid, *descendants(process.pid)]
        process.kill()
        assert all_gone(family)


def samples(folder: Path) -> int:
    return int(json.loads((folder / "summary.json").read_text())["samples"])


def test_two_phases_of_one_script_train_one_after_the_other(launch: Launch) -> None:
    lines = """
model[0].requires_grad_(False)
train(model, model[2].parameters(), 4)
model[0].requires_grad_(True)
train(model, model.parameters(), 6, scheme="localsgd")
print("weights", [float(p.sum()) for p in model.parameters()])
"""
    code, out, run = launch(lines)
    assert code == 0
    assert sorted(line for line in out.splitlines() if "steps 6" in line) == [
        f"[worker {rank}] trained {rank} of 2 steps 6 total 48" for rank in (0, 1)
    ]
    assert [samples(run), samples(run / "part-2")] == [48, 48]
    weights = {line.partition("weights [")[2] for line in out.splitlines() if "weights [" in line}
    assert len(weights) == 1
    assert "part 2: localsgd: " in out


def test_an_exception_that_the_script_catches_ends_its_part_and_the_next_begins(launch: Launch) -> None:
    lines = """
batch = 16
while True:
    try:
        train(nn.Linear(4, 1), model.parameters(), batch) if batch > 16 else None
        fresh = nn.Linear(4, 1)
        train(fresh, fresh.parameters(), batch, most=4)
        break
    except RuntimeError as error:
        print("halved", batch, error)
        batch //= 2
"""
    code, out, run = launch(lines)
    assert code == 0
    assert out.count("halved 16 out of memory") == out.count("halved 8 out of memory") == 2
    assert [samples(run), samples(run / "part-2"), samples(run / "part-3")] == [0, 0, 48]


def test_a_worker_that_is_lost_in_one_part_is_not_in_the_next(launch: Launch) -> None:
    code, out, run = launch(
        "train(model, model.parameters(), 4, kill=1)\ntrain(model, model.parameters(), 4)\n",
        "--restarts",
        "0",
        workers=3,
    )
    assert code == 0
    assert out.count("of 3 steps") == out.count("of 2 steps") == 2
    assert samples(run / "part-2") == 48


def test_a_second_join_beside_the_first_is_an_error_at_its_next_step(launch: Launch) -> None:
    lines = """
first = paceline.join(model[0], torch.optim.SGD(model[0].parameters(), lr=0.1), scheme="bsp")
second = paceline.join(model[2], torch.optim.SGD(model[2].parameters(), lr=0.1), scheme="bsp")
model(torch.randn(4, 4)).sum().backward()
first.step(4)
"""
    code, out, _ = launch(lines)
    assert code == 1
    assert "several models go to one: join({name: model, ...}" in out


def test_workers_of_several_hosts_join_once() -> None:
    spec = ProcessSpec(
        party="worker 1", workers=2, servers=1, coordinator="10.0.0.1:4", token="x" * 32, bind="10.0.0.2"
    )
    with pytest.raises(ConfigError, match=r"worker 1 of its run already.*another command"):
        RunPart(spec, 1, frozenset()).next()
