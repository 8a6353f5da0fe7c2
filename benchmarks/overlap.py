"""What communicating while computing saves of a step, and how much of the exchange it hides.

python benchmarks/overlap.py [--models resnet18:0.25,cnn,mlp:39] [--schemes bsp,asp] [--transports link,auto,tcp]
                             [--link-mbit 1000] [--batch 32] [--seconds 10] [--rounds 3]

Two workers and one server train with `paceline train`, in turn with `--overlap off`, `on` and `auto`: gradients leave
while backward makes them, and the first layers come back first; `auto` measures its first steps both ways and keeps the
faster. Models are given with their width; each travels in slices of
an eighth of itself, at most 4 MiB, because what is one slice leaves as one.

`link` is TCP over a link of --link-mbit, which all bytes of the run share: the loopback device of a network namespace
of the run's own, with a token bucket (`tc ... tbf`; takes root). There bytes take time and no processor. `tcp` is the
bare loopback device and `auto` shared memory, where all of an exchange is work for a processor: what can be hidden
there is what another core does meanwhile, if one is idle.

`still` is how long a worker stood still in a step for what its exchange brings (sent, waited for, received; a forward
pass that waits for its layer's weights, too), from the run's own trace. Hidden is the part of it that is gone with
overlap: over shared memory no bytes move that could be timed, but the server's work can be hidden all the same. The
seconds of a step are those from its first second on; under `auto` from the decision on. All figures are medians
of the rounds, the ratios those of the runs of one round. `link` in the table is how long the bytes of a step of all
workers take on the link: no step can be shorter, with overlap or without. `chose` is how many of the workers of all
rounds `auto` let overlap; `-` where none of them tried.

Claims: under `auto` a step never takes more than 2 % longer than without overlap; and where overlap makes it shorter by
a twentieth, `auto` makes it shorter, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from _verdict import verdict

from paceline.bench.report import conditions
from paceline.core.trace import OVERLAP_VERDICTS, OVERLAPS, Decided, Record, Span
from paceline.engine.models import build
from paceline.engine.specs import ModelRecipe
from paceline.observe.trace.trace_file import read_trace

LINK = "link"
NEVER_S = "1e6"  # --eval-every: the evaluator would take a core of the two
WAYS = ("off", "on", "auto")
COLD_S = 1.0
"""Seconds of each worker that are not counted where nothing is tried."""
LONGER_MAX, GAIN = 1.02, 0.95


class Figures(NamedTuple):
    """Of a run, or medians of several: seconds of a step, and those in which the worker stood still; bytes of all.

    tried: workers that measured both ways; chosen: those of them that overlap.
    """

    step_s: float
    still_s: float
    nbytes: float
    tried: float
    chosen: float


def run(options: argparse.Namespace, model: str, scheme: str, transport: str, way: str) -> Figures:
    name, _, width = model.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        job = [sys.executable, "-m", "paceline", "train", "--scheme", scheme, "--workers", "2", "--servers", "1"]
        job += ["--model", name, "--width", width or "1", "--batch-size", str(options.batch), f"--overlap={way}"]
        job += ["--slice-mb", f"{slice_mb(name, float(width or 1)):.4f}"]
        job += ["--transport", "tcp" if transport == LINK else transport]
        job += ["--seconds", str(options.seconds), "--epochs", "1e9", "--eval-every", NEVER_S, "--out", str(out)]
        job = paced(options.link_mbit, job) if transport == LINK else job
        done = subprocess.run(job, check=False, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        summary = json.loads((out / "summary.json").read_text())
        records = list(read_trace(out / "trace.jsonl"))
    steps = statistics.mean(worker["steps"] for worker in summary["workers"])
    decided = {r.rank: r for r in records if isinstance(r, Decided) and r.verdict in OVERLAP_VERDICTS}
    each = [timed(records, rank, decided[rank].at if rank in decided else COLD_S) for rank in range(2)]
    step_s, still_s = map(statistics.mean, zip(*each, strict=True))
    chosen = sum(record.verdict == OVERLAPS for record in decided.values())
    return Figures(step_s, still_s, (summary["bytes_up"] + summary["bytes_down"]) / steps, len(decided), chosen)


def timed(records: Sequence[Record], rank: int, begin: float) -> tuple[float, float]:
    """Seconds of a worker's step, and those of it in which it stood still, in what its trace has from `begin` on."""
    spans = [r for r in records if isinstance(r, Span) and r.rank == rank and r.at > begin]
    computing = [span for span in spans if span.activity == "computing"]
    if len(computing) < 3:
        raise SystemExit(f"worker {rank} made {len(computing)} steps after {begin:.1f} s: give more --seconds")
    steps = sum(span.steps for span in computing[1:])
    first, last = computing[0].at, computing[-1].at
    still = sum(span.seconds for span in spans if span.activity != "computing" and first < span.at <= last)
    return (last - first) / steps, still / steps


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
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each")
    options = parser.parse_args()
    print(f"{conditions()}, 2 workers, 1 server, batches of {options.batch}")
    print(f"{'model':<15}{'scheme':<8}{'over':<6}{'link ms':>9}{'step ms':>10}{'on':>9}{'ratio':>8}{'auto':>9}", end="")
    print(f"{'ratio':>8}{'chose':>8}{'still ms':>11}{'on':>9}{'hidden':>9}")
    failed: list[str] = []
    for model, transport, scheme in itertools.product(
        options.models.split(","), options.transports.split(","), options.schemes.split(",")
    ):
        # The first of a round comes into a machine that has rested, so the ways change places.
        turns = [WAYS if turn % 2 == 0 else WAYS[::-1] for turn in range(options.rounds)]
        runs = [{way: run(options, model, scheme, transport, way) for way in turn} for turn in turns]
        failed += row(options, f"{model:<15}{scheme:<8}{transport:<6}", transport, runs)
    return verdict(
        f"auto: {'; '.join(failed) or 'never more than 2 % longer, and shorter where overlap is'}", not failed
    )


def row(options: argparse.Namespace, what: str, transport: str, runs: list[dict[str, Figures]]) -> list[str]:
    """Prints the row of these rounds; returns what falls short."""
    off, on, auto = (medians([each[way] for each in runs]) for way in WAYS)
    ratio, of_auto = (
        statistics.median(each[way].step_s / each["off"].step_s for each in runs) for way in ("on", "auto")
    )
    link_s = off.nbytes * 8 / (options.link_mbit * 1e6) if transport == LINK else 0.0
    tried, chosen = (sum(getattr(each["auto"], name) for each in runs) for name in ("tried", "chosen"))
    print(
        f"{what}{f'{link_s * 1e3:.1f}' if link_s else '-':>9}{off.step_s * 1e3:>10.1f}{on.step_s * 1e3:>9.1f}", end=""
    )
    print(f"{ratio:>8.2f}{auto.step_s * 1e3:>9.1f}{of_auto:>8.2f}", end="")
    print(f"{f'{chosen:.0f} of {tried:.0f}' if tried else '-':>8}", end="")
    print(f"{off.still_s * 1e3:>11.2f}{on.still_s * 1e3:>9.2f}{1 - on.still_s / off.still_s:>9.0%}", flush=True)
    failed = [f"{of_auto:.3f} times as long"] if of_auto > LONGER_MAX else []
    failed += [f"{of_auto:.3f} times as long where overlap takes {ratio:.3f}"] if ratio < GAIN and of_auto >= 1 else []
    return [f"{' '.join(what.split())}: {why}" for why in failed]


if __name__ == "__main__":
    sys.exit(main())
