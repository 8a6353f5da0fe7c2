"""What communicating while computing saves of a step, and how much of the exchange it hides.

python benchmarks/overlap.py [--models resnet18:0.25,cnn,mlp:39] [--schemes bsp,asp] [--transports link,auto,tcp]
                             [--link-mbit 1000] [--batch 32] [--seconds 4] [--rounds 3]

Two workers and one server train with `paceline train`, in turn with `--overlap on` and `off`: gradients leave while
backward makes them, and the first layers come back first. Models are given with their width; each travels in slices of
an eighth of itself, at most 4 MiB, because what is one slice leaves as one.

`link` is TCP over a link of --link-mbit, which all bytes of the run share: the loopback device of a network namespace
of the run's own, with a token bucket (`tc ... tbf`; takes root). There bytes take time and no processor. `tcp` is the
bare loopback device and `auto` shared memory, where all of an exchange is work for a processor: what can be hidden
there is what another core does meanwhile, if one is idle.

`still` is how long a worker stood still in a step for what its exchange brings (sent, waited for, received; a forward
pass that waits for its layer's weights, too), from the run's own trace. Hidden is the part of it that is gone with
overlap: over shared memory no bytes move that could be timed, but the server's work can be hidden all the same. The
seconds of a step are those of the run, through its steps. All figures are medians of the rounds. `link` in the table is
how long the bytes of a step of all workers take on the link: no step can be shorter, with overlap or without.

Claim, over `link`: with overlap a step is shorter, and a worker stands still for less of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _verdict import verdict

from paceline.bench.report import conditions
from paceline.engine.models import build
from paceline.engine.specs import ModelRecipe

LINK = "link"
NEVER_S = "1e6"  # --eval-every: the evaluator would take a core of the two


class Figures(NamedTuple):
    """Of a run, or medians of several: seconds of a step, and those in which the worker stood still; bytes of all."""

    step_s: float
    still_s: float
    nbytes: float


def run(options: argparse.Namespace, model: str, scheme: str, transport: str, flag: str) -> Figures:
    name, _, width = model.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        job = [sys.executable, "-m", "paceline", "train", "--scheme", scheme, "--workers", "2", "--servers", "1"]
        job += ["--model", name, "--width", width or "1", "--batch-size", str(options.batch), flag]
        job += ["--slice-mb", f"{slice_mb(name, float(width or 1)):.4f}"]
        job += ["--transport", "tcp" if transport == LINK else transport]
        job += ["--seconds", str(options.seconds), "--epochs", "1e9", "--eval-every", NEVER_S, "--out", str(out)]
        job = paced(options.link_mbit, job) if transport == LINK else job
        done = subprocess.run(job, check=False, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        summary = json.loads((out / "summary.json").read_text())
    workers = summary["workers"]
    steps = statistics.mean(worker["steps"] for worker in workers)
    still = statistics.mean(worker["seconds_waiting"] + worker["seconds_communicating"] for worker in workers)
    return Figures(summary["seconds"] / steps, still / steps, (summary["bytes_up"] + summary["bytes_down"]) / steps)


def paced(mbit: int, job: list[str]) -> list[str]:
    """`job` where the loopback device passes so many bits a second."""
    bucket = f"tc qdisc add dev lo root tbf rate {mbit}mbit burst 256kb latency 200ms"
    return ["unshare", "--net", "sh", "-c", f'ip link set lo up && {bucket} && exec "$@"', "sh", *job]


def slice_mb(name: str, width: float) -> float:
    """An eighth of the model, at most 4 MiB."""
    model = build(ModelRecipe(name=name, width=width), (1, 8, 8), 10, 0)
    return min(4.0, sum(p.numel() for p in model.parameters()) * 4 / 8 / 2**20)


def medians(runs: list[Figures]) -> Figures:
    return Figures(*map(statistics.median, zip(*runs, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18:0.25,cnn,mlp:39", help="name:width, separated by commas")
    parser.add_argument("--schemes", default="bsp,asp", help="one synchronous, one not")
    parser.add_argument("--transports", default="link,auto,tcp", help="auto is shared memory on one host")
    parser.add_argument("--link-mbit", type=int, default=1000, help="Mbit/s of `link`")
    parser.add_argument("--batch", type=int, default=32, help="samples of a step")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each")
    options = parser.parse_args()
    print(f"{conditions()}, 2 workers, 1 server, batches of {options.batch}")
    print(f"{'model':<15}{'scheme':<8}{'over':<6}{'link ms':>9}{'step ms':>10}{'with':>9}{'ratio':>8}", end="")
    print(f"{'still ms':>11}{'with':>9}{'hidden':>9}")
    holds = True
    for model, transport, scheme in itertools.product(
        options.models.split(","), options.transports.split(","), options.schemes.split(",")
    ):
        flags = ("--overlap=off", "--overlap=on")
        pairs = [[run(options, model, scheme, transport, flag) for flag in flags] for _ in range(options.rounds)]
        without, beside = (medians(list(side)) for side in zip(*pairs, strict=True))
        ratio, hidden = beside.step_s / without.step_s, 1 - beside.still_s / without.still_s
        link_s = without.nbytes * 8 / (options.link_mbit * 1e6) if transport == LINK else 0.0
        holds = holds and (transport != LINK or (ratio < 1.0 and hidden > 0))
        print(f"{model:<15}{scheme:<8}{transport:<6}{f'{link_s * 1e3:.1f}' if link_s else '-':>9}", end="")
        print(f"{without.step_s * 1e3:>10.1f}{beside.step_s * 1e3:>9.1f}", end="")
        print(f"{ratio:>8.2f}{without.still_s * 1e3:>11.2f}{beside.still_s * 1e3:>9.2f}{hidden:>9.0%}", flush=True)
    if LINK not in options.transports.split(","):
        print("nothing is claimed without `link` among the transports")
        return 0
    return verdict("over the link a shorter step, and something hidden", holds)


if __name__ == "__main__":
    sys.exit(main())
