"""A synchronous step of two workers under BSP without servers, against torch's DistributedDataParallel on Gloo.

python benchmarks/ddp.py [--workers 2] [--width 2236] [--batch 8] [--steps 4] [--rounds 9] [--allreduce auto]

The same perceptron of five square layers (25 million parameters by default) is trained by plain SGD on the same
batches in both ways, in the same processes, in blocks of steps in turn; the batch is small, so that the exchange is
what counts. The figures are medians of the blocks, each as long as its slowest worker; the claim is a ratio of at most
1.0, and that both ways lead to the same weights: apart by a thousandth of the way that they have gone, at most.
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
from typing import Any

from _verdict import verdict

BOUND = 1.0
LAYERS = 5
LR = 1.0
APART = 1e-3


def inside(options: argparse.Namespace, folder: Path) -> None:
    """One worker, started by `paceline launch`; rank 0 writes the seconds of every block, by way."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import paceline

    torch.set_num_threads(1)
    rank, workers = int(os.environ["PACELINE_RANK"]), options.workers
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=workers)

    def fresh() -> nn.Module:
        torch.manual_seed(1)
        layers = [nn.Linear(options.width, options.width, bias=False) for _ in range(LAYERS)]
        return nn.Sequential(*[part for layer in layers for part in (layer, nn.Tanh())])

    plain, paced = fresh(), fresh()
    ddp = DistributedDataParallel(plain)
    ddp_optimizer = torch.optim.SGD(ddp.parameters(), lr=LR)
    pace = paceline.join(paced, torch.optim.SGD(paced.parameters(), lr=LR), scheme="bsp")
    torch.manual_seed(rank)
    x, y = torch.randn(2, options.batch, options.width)

    def farthest(one: nn.Module, other: nn.Module) -> float:
        pairs = zip(one.parameters(), other.parameters(), strict=True)
        return max(float((a - b).detach().abs().max()) for a, b in pairs)

    def ddp_step() -> None:
        ddp_optimizer.zero_grad()
        nn.functional.mse_loss(ddp(x), y).backward()
        ddp_optimizer.step()

    def paced_step() -> None:
        nn.functional.mse_loss(paced(x), y).backward()
        pace.step(options.batch)

    def block(step: Callable[[], None]) -> float:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(options.steps):
            step()
        seconds = torch.tensor([(time.perf_counter() - began) / options.steps])
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return float(seconds)

    for step in (ddp_step, paced_step):
        block(step)  # warm-up
    rows = [(block(ddp_step), block(paced_step)) for _ in range(options.rounds)]
    pace.close()
    apart = farthest(plain, paced) / farthest(plain, fresh())
    if rank == 0:
        (folder / "answer.json").write_text(json.dumps({"rows": rows, "apart": apart}))
    dist.barrier()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        command = [sys.executable, "-m", "paceline", "launch", "-n", str(options.workers), "-s", "0"]
        command += ["--allreduce", options.mean, "--out", str(folder / "run"), sys.executable, *sys.argv]
        done = subprocess.run([*command, "--inside", text], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes that train")
    parser.add_argument("--width", type=int, default=2236, help=f"of the {LAYERS} square layers")
    parser.add_argument("--batch", type=int, default=8, help="samples of each worker in a step")
    parser.add_argument("--steps", type=int, default=4, help="steps of a block")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of blocks")
    parser.add_argument("--allreduce", default="auto", help="who carries the means, as for `paceline launch`")
    parser.add_argument("--inside", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options, Path(options.inside))
        return 0
    answer = measure(options)
    ddp, paced = (statistics.median(row[k] for row in answer["rows"]) for k in (0, 1))
    ratio = statistics.median(row[1] / row[0] for row in answer["rows"])
    print(
        f"{datetime.date.today()}, {os.cpu_count()} cores, {options.workers} workers with a thread each, "
        f"{LAYERS * options.width**2:,} parameters, batches of {options.batch}"
    )
    print(
        f"DDP on Gloo {ddp * 1e3:.1f} ms a step, Paceline's BSP {paced * 1e3:.1f} ms; "
        f"weights apart by {answer['apart']:.1g} of their way"
    )
    same = answer["apart"] <= APART
    return verdict(f"ratio {ratio:.2f}, claimed at most {BOUND}, with the same weights", ratio <= BOUND and same)


if __name__ == "__main__":
    sys.exit(main())
