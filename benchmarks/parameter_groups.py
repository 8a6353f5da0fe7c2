"""What four parameter groups cost a step, against one group of the same 150 tensors.

python benchmarks/parameter_groups.py [--width 160] [--steps 20] [--blocks 15] [--scheme asp] [--optimizers sgd,adamw]

A worker that is alone, and its server as a thread of the same process: `pace.step()` hands the gradient over, the
server makes the update, and the worker takes the new weights. The groups' tensors lie all over the model, and each
group has numbers of its own. One block of steps with one group, one with four, and so on in turn; a figure is that of
the fastest block, as others may use the machine.

Claim: `pace.step()` takes at most 5 % more of the processor's time.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Callable

import torch
from _verdict import verdict
from torch import nn

import paceline
from paceline.runtime.worker.pace import Pace

LAYERS = 75
"""Each with a weight and a bias."""
GROUPS = 4
MORE_MAX = 0.05


def model_of(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS)))


def groups_of(model: nn.Module, count: int) -> list[dict[str, object]]:
    every = list(model.parameters())
    return [{"params": every[i::count], "lr": 1e-4 * (i + 1), "weight_decay": 0.01 * (i + 1)} for i in range(count)]


MAKE: dict[str, Callable[[list[dict[str, object]]], torch.optim.Optimizer]] = {
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    "adamw": lambda groups: torch.optim.AdamW(groups),
}


def block(pace: Pace, model: nn.Module, x: torch.Tensor, steps: int) -> tuple[float, float]:
    """Milliseconds of a `pace.step()`: of processor time, the server's included, and as they pass."""
    used = passed = 0.0
    for _ in range(steps):
        model(x).square().mean().backward()
        began, since = time.process_time(), time.perf_counter()
        pace.step(len(x))
        used, passed = used + time.process_time() - began, passed + time.perf_counter() - since
    return 1e3 * used / steps, 1e3 * passed / steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=160, help="of a layer")
    parser.add_argument("--steps", type=int, default=20, help="of a block")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--scheme", default="asp")
    parser.add_argument("--optimizers", default="sgd,adamw")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.randn(4, options.width)
    worst = 0.0
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {2 * LAYERS} tensors of {options.width} x {options.width}")
    for name in options.optimizers.split(","):
        models = {count: model_of(options.width) for count in (1, GROUPS)}
        paces = {
            count: paceline.join(model, MAKE[name](groups_of(model, count)), scheme=options.scheme)
            for count, model in models.items()
        }
        times: dict[int, list[tuple[float, float]]] = {1: [], GROUPS: []}
        for at in range(-1, options.blocks):  # the first is not counted
            for count in times if at % 2 else reversed(times):
                took = block(paces[count], models[count], x, options.steps)
                if at >= 0:
                    times[count].append(took)
        one, several = (tuple(map(min, zip(*times[count], strict=True))) for count in (1, GROUPS))
        for pace in paces.values():
            pace.close()
        more = several[0] / one[0] - 1
        worst = max(worst, more)
        used = f"one group {one[0]:.3f} ms, {GROUPS} groups {several[0]:.3f} ms: {more:+.1%}"
        print(f"{name:<6} {used} (as they pass: {one[1]:.3f} and {several[1]:.3f} ms)", flush=True)
    return verdict(f"at most {MORE_MAX:.0%} longer; measured {worst:+.1%}", worst <= MORE_MAX)


if __name__ == "__main__":
    sys.exit(main())
