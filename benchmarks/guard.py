"""What the gate of a server costs: a push judged and applied, against a push applied.

python benchmarks/guard.py [--length 1048576] [--rounds 41] [--bound 0.2]

One slice of --length numbers (1,048,576 are the 4 MiB of a default slice) goes through the box of `asp` with plain SGD,
with the gate and without, in turn in one process, so that a noisy machine disturbs both alike. Before each push 64 MiB
of other memory are read, as if other slices had passed; `warm` leaves that out. Figures are medians of the pushes. The
claim is that judging adds at most --bound to the time of applying; where it fails the exit code is 1. What it adds to
a whole push and pull is told by `benchmarks/exchange.py --gate off,warn`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
from _verdict import verdict

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.paramserver.gated_server import Push
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import make
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.engine.vectors.norm_probe import Probe


def box(mode: str, length: int) -> Role:
    scheme = make("asp", {})
    server = scheme.server(1)
    assert server is not None
    gate = GradientCheckPolicy(mode=mode).gate(Probe(length), 1, 0, None)
    rule = make_rule(OptimizerRecipe(lr=1e-6))
    return server(scheme, RoleContext(me=0, workers=(0,), w=Flat.wrap(torch.zeros(length)), update=rule, gate=gate))


def push_s(role: Role, clock: int, g: Flat, others: torch.Tensor | None) -> float:
    if others is not None:
        others.sum()
    push = Push(g=g, clock=clock, samples=1)
    begin = time.perf_counter()
    list(role.on(0.0, 0, push))
    return time.perf_counter() - begin


def measure(length: int, rounds: int, others: torch.Tensor | None) -> tuple[float, float]:
    """Median seconds of a push without and with a gate."""
    roles, g = {mode: box(mode, length) for mode in ("off", "warn")}, Flat.wrap(torch.randn(length))
    seconds: dict[str, list[float]] = {mode: [] for mode in roles}
    for clock in range(1, rounds + 4):
        for mode in sorted(roles, reverse=clock % 2 == 0):
            took = push_s(roles[mode], clock, g, others)
            if clock > 3:
                seconds[mode].append(took)
    return statistics.median(seconds["off"]), statistics.median(seconds["warn"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=2**20, help="numbers of the slice")
    parser.add_argument("--rounds", type=int, default=41, help="pushes of each kind")
    parser.add_argument("--bound", type=float, default=0.2, help="share that judging may add")
    given = parser.parse_args()
    torch.set_num_threads(1)
    added = 0.0
    for name, others in (("cold", torch.ones(2**24)), ("warm", None)):
        off, on = measure(given.length, given.rounds, others)
        print(f"{name}: applied {1e6 * off:.0f} us, judged and applied {1e6 * on:.0f} us, ratio {on / off:.3f}")
        added = max(added, on / off - 1)
    return verdict(f"judging adds {added:.1%}, claimed at most {given.bound:.0%}", added <= given.bound)


if __name__ == "__main__":
    sys.exit(main())
