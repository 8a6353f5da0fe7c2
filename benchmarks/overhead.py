"""What one worker under BSP costs over the plain PyTorch loop of the same model.

python benchmarks/overhead.py [--steps 8] [--rounds 9]

For every model the two loops run in turn in one process, in blocks of steps, so that a noisy machine disturbs both
alike; the figures are medians of the blocks and the ratio of those. `alone` is `paceline.join` without a launcher (no
server: the optimizer runs in this process), `one server` is `paceline launch -n 1 -s 1` (gradient and weights go over
TCP to a process of their own and back, every step). The claim is a ratio of at most 1.05.
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

MODELS = (("lenet", 1.0, 64), ("cnn", 1.0, 64), ("resnet18", 0.25, 64))
BOUND = 1.05


def inside(model_name: str, width: float, batch: int, steps: int, rounds: int) -> dict[str, float]:
    """Median seconds a step of the plain loop and of the loop under Paceline, block by block in turn."""
    import torch
    from torch import nn

    import paceline
    from paceline.engine import data, models
    from paceline.engine.recipes import DataRecipe, ModelRecipe

    torch.set_num_threads(1)
    train = data.load(DataRecipe(name="synthetic", samples=4 * batch)).train
    recipe = ModelRecipe(name=model_name, width=width)
    loss_of = nn.CrossEntropyLoss()

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        module = models.build(recipe, train.shape, train.classes, 1)
        return module, torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)

    plain, plain_optimizer = fresh()
    module, optimizer = fresh()
    pace = paceline.join(module, optimizer, scheme="bsp")
    batches = list(zip(torch.split(train.x, batch), torch.split(train.y, batch), strict=True))

    def plain_step(x: torch.Tensor, y: torch.Tensor) -> None:
        plain_optimizer.zero_grad()
        loss_of(plain(x), y).backward()
        plain_optimizer.step()

    def paced_step(x: torch.Tensor, y: torch.Tensor) -> None:
        loss_of(module(x), y).backward()
        pace.step(len(y))

    def block(step: Callable[[torch.Tensor, torch.Tensor], None]) -> float:
        began = time.perf_counter()
        for i in range(steps):
            step(*batches[i % len(batches)])
        return (time.perf_counter() - began) / steps

    for step in (plain_step, paced_step):
        block(step)  # warm-up
    seconds = [(block(plain_step), block(paced_step)) for _ in range(rounds)]
    pace.close()
    return {
        "plain": statistics.median(a for a, _ in seconds),
        "paced": statistics.median(b for _, b in seconds),
        "ratio": statistics.median(b / a for a, b in seconds),
    }


def outside(steps: int, rounds: int) -> list[dict[str, object]]:
    """One process for each model and way of running; rows as they come."""
    rows: list[dict[str, object]] = []
    print(f"{'model':<10}{'batch':>6}  {'under BSP':<12}{'plain ms':>9}{'paced ms':>9}{'ratio':>7}")
    for name, width, batch in MODELS:
        for how, launcher in (("alone", []), ("one server", ["-m", "paceline", "launch", "-n", "1", "-s", "1"])):
            with tempfile.TemporaryDirectory() as folder:
                answer = Path(folder) / "answer.json"
                job = [__file__, "--inside", name, str(width), str(batch), str(answer)]
                job += ["--steps", str(steps), "--rounds", str(rounds)]
                if launcher:
                    launcher = [*launcher, "--out", str(Path(folder) / "run"), sys.executable]
                subprocess.run([sys.executable, *launcher, *job], check=True, stdout=subprocess.DEVNULL)
                row = json.loads(answer.read_text())
            rows.append({"model": name, "batch": batch, "how": how, **row})
            print(
                f"{name:<10}{batch:>6}  {how:<12}{row['plain'] * 1e3:>9.2f}{row['paced'] * 1e3:>9.2f}"
                f"{row['ratio']:>7.3f}",
                flush=True,
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="steps of a block")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of blocks")
    parser.add_argument("--inside", nargs=4, metavar=("MODEL", "WIDTH", "BATCH", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        name, width, batch, answer = options.inside
        figures = inside(name, float(width), int(batch), options.steps, options.rounds)
        Path(answer).write_text(json.dumps(figures))
        return 0
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, one thread each")
    rows = outside(options.steps, options.rounds)
    worst = max(float(str(row["ratio"])) for row in rows)
    print(f"worst ratio {worst:.3f}, claimed at most {BOUND}: {'holds' if worst <= BOUND else 'DOES NOT HOLD'}")
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
