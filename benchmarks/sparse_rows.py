"""What a step costs that looks into 1,024 rows of an embedding of a million: gradients as rows against whole ones.

python benchmarks/sparse_rows.py [--rows 1000000] [--width 64] [--batch 1024] [--steps 20] [--rounds 3]

The model is `nn.EmbeddingBag` and a linear layer; one worker, one server, ASP, plain SGD, `paceline launch`. The two
sides differ in `sparse=True` alone and run in turn. A step is forward, backward and the exchange, as the script sees
it; figures are medians over all steps of all rounds. Bytes are those of a run's summary, per step: what a run of a few
steps sends (first of all the initial weights) is taken off. Vectors that pass through shared memory count like those
that are sent.

The claim is two-fold: either way a step moves at most 1.05 times the bytes of its rows (each with its number) and of
the dense layer, and it is at least 20 times as fast as with whole gradients.
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
from pathlib import Path

BYTES_BOUND, SPEED_BOUND = 1.05, 20.0
WARM_STEPS = 3
HEADER_BYTES = 1000  # of a message each way, and of the reports that are sent meanwhile


def inside(sparse: bool, options: argparse.Namespace, steps: int) -> list[float]:
    """Seconds of each step after the first few."""
    import torch
    from torch import nn

    import paceline

    torch.set_num_threads(1)
    model = nn.Sequential(nn.EmbeddingBag(options.rows, options.width, sparse=sparse), nn.Linear(options.width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pace = paceline.join(model, optimizer, scheme="asp")
    generator = torch.Generator().manual_seed(1)
    seconds = []
    for _ in range(WARM_STEPS + steps):
        x = torch.randperm(options.rows, generator=generator)[: options.batch, None]
        began = time.perf_counter()
        nn.functional.cross_entropy(model(x), x[:, 0] % 2).backward()
        pace.step(len(x))
        seconds.append(time.perf_counter() - began)
    pace.close()
    return seconds[WARM_STEPS:]


def outside(sparse: bool, options: argparse.Namespace, steps: int) -> tuple[list[float], list[int]]:
    """Seconds of the steps of one run, and the bytes it moved up and down."""
    with tempfile.TemporaryDirectory() as folder:
        answer, run = Path(folder) / "answer.json", Path(folder) / "run"
        job = [sys.executable, __file__, "--inside", "rows" if sparse else "whole", str(answer)]
        for name in ("rows", "width", "batch"):
            job += [f"--{name}", str(getattr(options, name))]
        launch = [sys.executable, "-m", "paceline", "launch", "-n", "1", "-s", "1", "--out", str(run)]
        subprocess.run([*launch, *job, "--steps", str(steps)], check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((run / "summary.json").read_text())
        return json.loads(answer.read_text()), [summary["bytes_up"], summary["bytes_down"]]


def measured(options: argparse.Namespace) -> dict[bool, tuple[float, float, float]]:
    """By side: median seconds of a step, bytes up and bytes down of a step."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    moved: dict[bool, list[int]] = {}
    for _ in range(options.rounds):
        for sparse in (True, False):
            took, moved[sparse] = outside(sparse, options, options.steps)
            seconds[sparse] += took
    found = {}
    for sparse in (True, False):
        _, before = outside(sparse, options, 0)
        up, down = ((after - first) / options.steps for after, first in zip(moved[sparse], before, strict=True))
        found[sparse] = statistics.median(seconds[sparse]), up, down
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the embedding")
    parser.add_argument("--width", type=int, default=64, help="numbers of a row")
    parser.add_argument("--batch", type=int, default=1024, help="rows that a batch looks into")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, in turn")
    parser.add_argument("--inside", nargs=2, metavar=("SIDE", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        side, answer = options.inside
        Path(answer).write_text(json.dumps(inside(side == "rows", options, options.steps)))
        return 0
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, one thread each")
    print(f"{options.batch:,} rows of {options.rows:,} x {options.width}, one worker, one server")
    found = measured(options)
    for sparse, (seconds, up, down) in found.items():
        name = "as rows" if sparse else "whole"
        print(f"{name:<8}{seconds * 1e3:>10.2f} ms a step{up / 1e6:>12.3f} MB up{down / 1e6:>12.3f} MB down")
    least = options.batch * 4 * (options.width + 1) + 4 * (2 * options.width + 2) + HEADER_BYTES
    excess, speed = max(found[True][1:]) / least, found[False][0] / found[True][0]
    holds = excess <= BYTES_BOUND and speed >= SPEED_BOUND
    print(f"bytes of rows, the limit: {excess:.3f}, claimed at most {BYTES_BOUND}")
    print(f"speed of rows, of whole:  {speed:.1f}, claimed at least {SPEED_BOUND:g}")
    print(f"both: {'holds' if holds else 'DOES NOT HOLD'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
