"""Measures what a training step of one worker costs, against a plain PyTorch loop of the same model.

The two loops run in turn in one process, in blocks of steps, on the same made-up samples, with one thread. The scheme
is BSP and the device the CPU, unless `benchmarks/gpu.py` asks for others. Without a server it is `paceline.join`
without a launcher: the optimizer runs in this process. With servers it is `paceline launch -n 1`: gradient and weights
go to processes of their own and back, under BSP in every step. The limit is the plain loop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import paceline
from paceline.bench.result import FLOAT_BYTES, Figure, Note, say_nothing
from paceline.bench.subprocess_job import PATIENCE_S, ROOT
from paceline.core.errors import PacelineError, TimedOut
from paceline.engine import data, models
from paceline.engine.accelerators import wait_for
from paceline.engine.models.gpt import gpt
from paceline.engine.specs import DataRecipe, ModelRecipe

LIMIT = "the plain PyTorch loop"
"""What a step is compared with, as the table names it."""
BATCHES = 4
"""Batches of made-up samples, used again and again."""
WIDTHS = {"resnet18": 0.25}
"""Of models that would take a second a step on a CPU at their own."""
GPT2, RESNET50 = "gpt2", "resnet50"
"""GPT-2 of 124 million parameters, with contexts of 1,024 tokens; ResNet-50 with pictures of 224 by 224."""

Step = Callable[[Tensor, Tensor], None]
PROFILED = 4
"""Steps in which the calls that wait for the GPU are counted."""
WAITING_CALLS = ("Synchronize", "HostRegister", "HostAlloc")
"""How calls of CUDA end that hold up the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadJob:
    """Describes one measurement; `servers` 0 is a worker without a launcher.

    A round is a block of `steps` steps of each loop; batches have `batch` samples. `profile`: whether the calls that
    wait for the GPU are counted, in a few steps of each loop at the end. `parameters`: of the scheme.
    """

    model: str
    servers: int = 0
    transport: str = "auto"
    batch: int = 64
    steps: int = 8
    rounds: int = 9
    scheme: str = "bsp"
    parameters: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    profile: bool = False

    def width(self) -> float:
        """Returns the width of the model, relative to its own."""
        return WIDTHS.get(self.model, 1.0)


def measure(jobs: Sequence[OverheadJob], note: Note = say_nothing) -> Iterator[Figure]:
    """Yields a figure for each, of one step. Raises PacelineError when the process that measures fails."""
    for job in jobs:
        how = f"{job.servers} server{'s' * (job.servers > 1)}" if job.servers else "alone"
        note(f"{job.model}, {how}: {job.rounds} rounds of {job.steps} steps")
        answer = _outside(job)
        conditions = {key: value for key, value in asdict(job).items() if job.servers or key != "transport"}
        yield Figure.of(
            f"a step of {job.model}, {how}{', ' + job.scheme if job.scheme != 'bsp' else ''}",
            LIMIT,
            answer["bytes"],
            answer["paced"],
            answer["plain"],
            width=job.width(),
            **conditions,
            **{name: waits for name, waits in answer.items() if name.endswith("_waits")},
        )


def _outside(job: OverheadJob) -> dict[str, Any]:
    """Returns the answer of a process of its own, started as a user's script is.

    Raises TimedOut when it takes too long, and PacelineError with its last line when it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        launch = ["-m", "paceline", "launch", "-n", "1", "-s", str(job.servers), "--transport", job.transport]
        launch += ["--out", str(Path(folder) / "run"), sys.executable]
        command = [sys.executable, *(launch if job.servers else [])]
        command += ["-m", "paceline.bench.overhead", json.dumps(asdict(job)), str(answer)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise TimedOut(
                f"waited {PATIENCE_S:.0f} s for the steps of {job.model}: give fewer with --rounds"
            ) from None
        if done.returncode or not answer.exists():
            said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
            raise PacelineError(f"the process that measures {job.model} failed: {said[-1]}")
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def inside(job: OverheadJob) -> dict[str, Any]:
    """Returns seconds a step of either loop, block by block in turn; bytes of the gradient."""
    torch.set_num_threads(1)
    device = torch.device(job.device)
    task = task_of(job.model, job.batch, device)
    batches, loss_of = task.batches, task.loss_of
    plain, plain_optimizer = task.fresh()
    module, optimizer = task.fresh()
    pace = paceline.join(module, optimizer, scheme=job.scheme, **job.parameters)

    def plain_step(x: torch.Tensor, y: torch.Tensor) -> None:
        """Makes a step of the plain loop."""
        plain_optimizer.zero_grad()
        loss_of(plain, x, y).backward()  # type: ignore[no-untyped-call]
        plain_optimizer.step()

    def paced_step(x: torch.Tensor, y: torch.Tensor) -> None:
        """Makes a step of Paceline's loop."""
        loss_of(module, x, y).backward()  # type: ignore[no-untyped-call]
        pace.step(len(y))

    def block(step: Step) -> float:
        """Returns the seconds of a step, over a block of them."""
        began = time.perf_counter()
        for i in range(job.steps):
            step(*batches[i % BATCHES])
        wait_for(device)
        return (time.perf_counter() - began) / job.steps

    for step in (plain_step, paced_step):
        block(step)  # warm-up
    seconds = [(block(plain_step), block(paced_step)) for _ in range(job.rounds)]
    x, y = batches[0]
    waits = (
        {"plain_waits": _waits(lambda: plain_step(x, y)), "paced_waits": _waits(lambda: paced_step(x, y))}
        if job.profile
        else {}
    )
    pace.close()
    nbytes = FLOAT_BYTES * sum(p.numel() for p in plain.parameters())
    return {"plain": [a for a, _ in seconds], "paced": [b for _, b in seconds], "bytes": nbytes, **waits}


def _waits(step: Callable[[], None]) -> dict[str, int]:
    """Returns how often the host waits for the GPU in PROFILED steps, by the call of CUDA that waits."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(PROFILED):
            step()
    return {event.key: event.count for event in profile.key_averages() if event.key.endswith(WAITING_CALLS)}


# ---- what is trained ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TrainingTask:
    """Holds what a loop needs. `fresh` returns a model and its optimizer, alike each time."""

    fresh: Callable[[], tuple[nn.Module, torch.optim.Optimizer]]
    batches: list[tuple[Tensor, Tensor]]
    loss_of: Callable[[nn.Module, Tensor, Tensor], Tensor]


def task_of(name: str, batch: int, device: torch.device) -> TrainingTask:
    """Returns the task that trains the network `name` on `device`; on a GPU forward passes are in bfloat16."""
    x, y, build = _language(batch) if name == GPT2 else _pictures(name, batch)

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = build().to(device)
        if name == GPT2:
            return model, torch.optim.AdamW(model.parameters(), lr=3e-4)
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
            return nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

    batches = list(zip(torch.split(x.to(device), batch), torch.split(y.to(device), batch), strict=True))
    return TrainingTask(fresh, batches, loss_of)


def _pictures(name: str, batch: int) -> tuple[Tensor, Tensor, Callable[[], nn.Module]]:
    recipe = ModelRecipe(name=name, width=WIDTHS.get(name, 1.0))
    if name != RESNET50:
        train = data.load(DataRecipe(name="synthetic", samples=BATCHES * batch)).train
        return train.x, train.y, lambda: models.build(recipe, train.shape, train.classes, 1)
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(BATCHES * batch, 3, 224, 224, generator=draw)
    y = torch.randint(1000, (BATCHES * batch,), generator=draw)
    return x, y, lambda: models.build(recipe, (3, 224, 224), 1000, 1)


def _language(batch: int) -> tuple[Tensor, Tensor, Callable[[], nn.Module]]:
    vocabulary, context = 50257, 1024
    tokens = torch.randint(vocabulary, (BATCHES * batch, context + 1), generator=torch.Generator().manual_seed(1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), lambda: gpt(vocabulary, 768, 12, 12, context)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(inside(OverheadJob(**json.loads(sys.argv[1])))))
