"""A synchronous step of two workers under BSP without servers, against torch's DistributedDataParallel on Gloo.

python benchmarks/ddp.py [--models perceptron,lenet,cnn] [--workers 2] [--width 2236] [--batch 0] [--steps 0]
    [--rounds 9] [--allreduce auto]

    perceptron  five square layers, 25 million parameters by default, in batches of 8
    lenet, cnn  of `paceline train`, on made-up pictures of 28 by 28, in batches of 64

The same model is trained by plain SGD on the same batches in both ways, in the same processes, in blocks of steps in
turn. The figures are medians of the blocks, each as long as its slowest worker; the claim is a ratio of at most 1.0,
and that both ways lead to the same weights. Roundings differ, and training makes a difference grow, so a third model
tells how far one rounding leads: it is trained by DDP, too, and one weight of it was moved by 1e-6 of itself. Weights
are the same if they are apart by a thousandth of the way that they have gone, or twice as far as that model, at most.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _verdict import verdict

if TYPE_CHECKING:  # the command itself needs no torch
    from torch import Tensor, nn

BOUND = 1.0
LAYERS = 5
APART = 1e-3
NUDGE = 1e-6
LR = {"perceptron": 1.0, "lenet": 0.002, "cnn": 0.002}
BATCH = {"perceptron": 8, "lenet": 64, "cnn": 64}
"""Samples of each worker in a step, by model."""
STEPS = {"perceptron": 4, "lenet": 60, "cnn": 12}
"""Steps of a block, by model."""


def inside(options: argparse.Namespace, folder: Path) -> None:
    """One worker, started by `paceline launch`; rank 0 writes the seconds of every block, by way."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import paceline

    torch.set_num_threads(1)
    rank, workers = int(os.environ["PACELINE_RANK"]), options.workers
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=workers)

    name, lr = options.models, LR[options.models]
    batch, steps = options.batch or BATCH[name], options.steps or STEPS[name]
    fresh, draw, loss_of = task(name, options.width)
    plain, paced = fresh(), fresh()
    nudged = fresh()
    with torch.no_grad():
        next(nudged.parameters()).view(-1)[0] *= 1 + NUDGE
    pace = paceline.join(paced, torch.optim.SGD(paced.parameters(), lr=lr), scheme="bsp")
    torch.manual_seed(rank)
    x, y = draw(batch)

    def farthest(one: nn.Module, other: nn.Module) -> float:
        pairs = zip(one.parameters(), other.parameters(), strict=True)
        return max(float((a - b).detach().abs().max()) for a, b in pairs)

    def step_of_ddp(module: nn.Module) -> Callable[[], None]:
        ddp = DistributedDataParallel(module)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=lr)

        def step() -> None:
            optimizer.zero_grad()
            loss_of(ddp(x), y).backward()
            optimizer.step()

        return step

    def paced_step() -> None:
        loss_of(paced(x), y).backward()
        pace.step(batch)

    def block(step: Callable[[], None]) -> float:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        seconds = torch.tensor([(time.perf_counter() - began) / steps])
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return float(seconds)

    ddp_step = step_of_ddp(plain)
    for step in (ddp_step, paced_step):
        block(step)  # warm-up
    rows = [(block(ddp_step), block(paced_step)) for _ in range(options.rounds)]
    pace.close()
    nudged_step = step_of_ddp(nudged)
    for _ in range(1 + options.rounds):
        block(nudged_step)
    way = farthest(plain, fresh())
    if rank == 0:
        apart = {"apart": farthest(plain, paced) / way, "by_a_rounding": farthest(plain, nudged) / way}
        length = sum(p.numel() for p in plain.parameters())
        (folder / "answer.json").write_text(json.dumps({"rows": rows, "length": length, **apart}))
    dist.barrier()


def task(name: str, width: int) -> tuple[Callable[[], nn.Module], Callable[[int], Any], Callable[..., Tensor]]:
    """Returns what makes the model, what draws a batch of so many samples, and the loss."""
    import torch
    from torch import nn

    def perceptron() -> nn.Module:
        torch.manual_seed(1)
        layers = [nn.Linear(width, width, bias=False) for _ in range(LAYERS)]
        return nn.Sequential(*[part for layer in layers for part in (layer, nn.Tanh())])

    if name == "perceptron":
        return perceptron, lambda batch: torch.randn(2, batch, width), nn.functional.mse_loss

    from paceline.engine import models
    from paceline.engine.specs import ModelRecipe

    def pictures(batch: int) -> tuple[Tensor, Tensor]:
        return torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))

    return lambda: models.build(ModelRecipe(name=name), (1, 28, 28), 10, 1), pictures, nn.functional.cross_entropy


def measure(options: argparse.Namespace, name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        command = [sys.executable, "-m", "paceline", "launch", "-n", str(options.workers), "-s", "0"]
        command += ["--allreduce", options.allreduce, "--out", str(folder / "run"), sys.executable, *sys.argv]
        done = subprocess.run(
            [*command, "--models", name, "--inside", text], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(BATCH), help="of the comparison")
    parser.add_argument("--workers", type=int, default=2, help="processes that train")
    parser.add_argument("--width", type=int, default=2236, help=f"of the {LAYERS} square layers")
    parser.add_argument("--batch", type=int, default=0, help="samples of each worker in a step; 0: as above")
    parser.add_argument("--steps", type=int, default=0, help="steps of a block; 0: by model")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of blocks")
    parser.add_argument("--allreduce", default="auto", help="who carries the means, as for `paceline launch`")
    parser.add_argument("--inside", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options, Path(options.inside))
        return 0
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {options.workers} workers with a thread each")
    print(f"{'model':<11}{'parameters':>12}{'batch':>7}{'DDP ms':>9}{'BSP ms':>9}{'ratio':>7}  rounds; weights apart")
    holds = True
    for name in options.models.split(","):
        answer = measure(options, name)
        ddp, paced = (statistics.median(row[k] for row in answer["rows"]) for k in (0, 1))
        ratios = sorted(row[1] / row[0] for row in answer["rows"])
        ratio = statistics.median(ratios)
        print(
            f"{name:<11}{answer['length']:>12,}{options.batch or BATCH[name]:>7}{ddp * 1e3:>9.2f}{paced * 1e3:>9.2f}"
            f"{ratio:>7.2f}  {ratios[0]:.2f} to {ratios[-1]:.2f}; {answer['apart']:.1g} of their way, "
            f"by a rounding {answer['by_a_rounding']:.1g}",
            flush=True,
        )
        holds &= ratio <= BOUND and answer["apart"] <= max(APART, 2 * answer["by_a_rounding"])
    return verdict(f"ratios of at most {BOUND}, with the same weights", holds)


if __name__ == "__main__":
    sys.exit(main())
