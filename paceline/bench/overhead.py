"""Measures what a training step of one worker under BSP costs, against a plain PyTorch loop of the same model.

The two loops run in turn in one process, in blocks of steps, on the same synthetic images, with one thread. Without a
server it is `paceline.join` without a launcher: the optimizer runs in this process. With servers it is `paceline launch
-n 1`: gradient and weights go to processes of their own and back in every step. The limit is the plain loop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import paceline
from paceline.bench.result import FLOAT_BYTES, Figure, Note, say_nothing
from paceline.bench.subprocess_job import PATIENCE_S, ROOT
from paceline.core.errors import PacelineError, TimedOut
from paceline.engine import data, models
from paceline.engine.specs import DataRecipe, ModelRecipe

LIMIT = "the plain PyTorch loop"
"""What a step is compared with, as the table names it."""
BATCHES = 4
"""Batches of made-up pictures, used again and again."""
WIDTHS = {"resnet18": 0.25}
"""Of models that would take a second a step at their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadJob:
    """Describes one measurement; `servers` 0 is a worker without a launcher.

    A round is a block of `steps` steps of each loop; batches have `batch` samples.
    """

    model: str
    servers: int = 0
    transport: str = "auto"
    batch: int = 64
    steps: int = 8
    rounds: int = 9

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
            f"a step of {job.model}, {how}",
            LIMIT,
            answer["bytes"],
            answer["paced"],
            answer["plain"],
            width=job.width(),
            **conditions,
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
    train = data.load(DataRecipe(name="synthetic", samples=BATCHES * job.batch)).train
    batches = list(zip(torch.split(train.x, job.batch), torch.split(train.y, job.batch), strict=True))
    recipe, loss_of = ModelRecipe(name=job.model, width=job.width()), nn.CrossEntropyLoss()

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        """Returns a model and its optimizer, alike each time."""
        module = models.build(recipe, train.shape, train.classes, 1)
        return module, torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)

    plain, plain_optimizer = fresh()
    module, optimizer = fresh()
    pace = paceline.join(module, optimizer, scheme="bsp")

    def plain_step(x: torch.Tensor, y: torch.Tensor) -> None:
        """Makes a step of the plain loop."""
        plain_optimizer.zero_grad()
        loss_of(plain(x), y).backward()
        plain_optimizer.step()

    def paced_step(x: torch.Tensor, y: torch.Tensor) -> None:
        """Makes a step of Paceline's loop."""
        loss_of(module(x), y).backward()
        pace.step(len(y))

    def block(step: Callable[[torch.Tensor, torch.Tensor], None]) -> float:
        """Returns the seconds of a step, over a block of them."""
        began = time.perf_counter()
        for i in range(job.steps):
            step(*batches[i % BATCHES])
        return (time.perf_counter() - began) / job.steps

    for step in (plain_step, paced_step):
        block(step)  # warm-up
    seconds = [(block(plain_step), block(paced_step)) for _ in range(job.rounds)]
    pace.close()
    nbytes = FLOAT_BYTES * sum(p.numel() for p in plain.parameters())
    return {"plain": [a for a, _ in seconds], "paced": [b for _, b in seconds], "bytes": nbytes}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(inside(OverheadJob(**json.loads(sys.argv[1])))))
