"""A worker on a GPU: its exchange against the bus, its steps against the plain loop, and CPU workers beside it.

    python benchmarks/gpu.py [--parts exchange,steps,cluster] [--models resnet50,gpt2] [--rounds 7] [--seconds 30]
                             [--json FILE]

exchange  a push and pull over shared memory, against both copies by torch alone, and a pass over memory on the host
steps     ResNet-50 (64 pictures of 224 by 224) and GPT-2 of 124 million parameters (8 texts of 1,024 tokens), in
          bfloat16: alone, and with a server under bsp, asp (also on four) and diloco of 100 local steps, against the
          plain loop; in a few steps at the end the calls of CUDA are counted by which the host waits for the GPU
cluster   the GPU and three workers of four CPU threads each train one model for a while under bsp, esync and
          diloco: samples a second, and how many of them the GPU has made

Claims, on a machine with a GPU: an exchange of 10 MB or more at most 1.25 times its limit, a step alone or under diloco
at most 1.02 times the plain loop's. Without a GPU there is nothing to measure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from _verdict import verdict

from paceline.bench import exchange, overhead
from paceline.bench.report import conditions, table, write
from paceline.bench.result import Figure, floats

EXCHANGE_MAX, STEP_MAX = 1.25, 1.02
MBYTES = (1.0, 10.0, 100.0, 500.0)
LARGE_BYTES = 9_900_000
BATCHES = {"resnet50": 64, "gpt2": 8}
LOOPS = (
    (0, "bsp", {}, 20),
    (1, "diloco", {"h": 100}, 100),
    (1, "asp", {}, 4),
    (1, "bsp", {}, 4),
    (4, "asp", {}, 4),
)
"""Servers, scheme and its parameters, and steps of a block: a round of diloco, or a few with an exchange each."""
CPU_WORKERS, CPU_THREADS = 3, 4
MODELS = {
    "resnet50": ["--model", "resnet50", "--data", "digits", "--resize", "64", "--batch-size", "32"],
    "gpt2": [
        "--model",
        "gpt",
        "--width",
        "14.5",
        "--depth",
        "12",
        "--data",
        "text",
        "--context",
        "128",
        "--batch-size",
        "8",
        "--lr",
        "0.01",
    ],
}


def exchanges(rounds: int) -> Iterator[Figure]:
    for mbytes in MBYTES:
        jobs = [
            exchange.ExchangeJob(transport="shm", length=floats(mbytes), slice_mb=slices, device="cuda")
            for slices in ((0.0,) if mbytes < 10 else (0.0, 4.0))
        ]
        yield from exchange.measure(jobs, rounds)


def steps(rounds: int, loops: list[int], models: list[str]) -> Iterator[Figure]:
    for model, batch in ((name, BATCHES[name]) for name in models):
        for servers, scheme, parameters, steps_of_a_block in [LOOPS[number] for number in loops]:
            job = overhead.OverheadJob(
                model=model,
                servers=servers,
                scheme=scheme,
                parameters=parameters,
                batch=batch,
                steps=steps_of_a_block,
                rounds=rounds,
                device="cuda",
                profile=True,
            )
            yield from overhead.measure([job])


def rare(servers: int, scheme: str) -> bool:
    """Returns True if most steps have no exchange with a server."""
    return not servers or scheme == "diloco"


def cluster(seconds: float, models: list[str]) -> None:
    """Prints samples a second of a GPU among CPU workers, under each scheme."""
    print(f"one GPU and {CPU_WORKERS} workers of {CPU_THREADS} CPU threads, {seconds:g} s each, bfloat16")
    print(f" {'model':<14}{'scheme':<10}{'samples/s':>10}{'the GPU':>10}{'steps of each worker':>32}")
    for model, settings in ((name, MODELS[name]) for name in models):
        for scheme in ("bsp", "esync", "diloco"):
            summary = trained([*settings, "--scheme", scheme, "--seconds", str(seconds)])
            samples = [worker["samples"] for worker in summary["workers"]]
            made = ", ".join(str(worker["steps"]) for worker in summary["workers"])
            speed, share = summary["samples_per_second"], samples[0] / sum(samples)
            print(f" {model:<14}{scheme:<10}{speed:>10.1f}{share:>10.1%}{made:>32}", flush=True)


def trained(settings: list[str]) -> dict[str, Any]:
    """Returns the summary of a run. Raises SystemExit with its last line when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        devices = ",".join(["cuda:0", *["cpu"] * CPU_WORKERS])
        command = [sys.executable, "-m", "paceline", "train", "--workers", str(1 + CPU_WORKERS), "--device", devices]
        command += ["--threads", str(CPU_THREADS), "--precision", "bf16", "--eval-every", "1000", *settings]
        done = subprocess.run([*command, "--out", folder], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
        found: dict[str, Any] = json.loads((Path(folder) / "summary.json").read_text())
        return found


def waits(figure: Figure) -> str:
    of = figure.conditions
    return f"{figure.what}, {overhead.PROFILED} steps: waits for the GPU {of['paced_waits']}; plain {of['plain_waits']}"


def judge_exchanges(figures: list[Figure]) -> int:
    """Says whether the claim holds, by the better way of slicing at each size; returns the exit code."""
    large = {figure.nbytes for figure in figures if figure.nbytes >= LARGE_BYTES}
    worst = max(min(figure.ratio for figure in figures if figure.nbytes == nbytes) for nbytes in large)
    return verdict(f"worst exchange {worst:.2f} times its limit, claimed {EXCHANGE_MAX}", worst <= EXCHANGE_MAX)


def judge_steps(figures: list[Figure]) -> int:
    judged = [f.ratio for f in figures if rare(f.conditions["servers"], f.conditions["scheme"])]
    if not judged:
        return verdict("no loop was measured that the claim is about", holds=True)
    worst = max(judged)
    return verdict(f"worst step {worst:.3f} times the plain loop's, claimed {STEP_MAX}", worst <= STEP_MAX)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="exchange,steps,cluster", help="which, separated by commas")
    parser.add_argument("--loops", help="of `steps`, by number: 0 alone, 1 diloco, 2 asp, 3 bsp, 4 asp on 4 servers")
    parser.add_argument("--models", default=",".join(BATCHES), help="of `steps` and `cluster` (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side, in turn (default: 7)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run of `cluster` (default: 30)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: there is no GPU here")
        return 0
    parts, models, figures, holds = options.parts.split(","), options.models.split(","), [], []
    loops = [int(number) for number in options.loops.split(",")] if options.loops else list(range(len(LOOPS)))
    print(f"{conditions()}, {torch.cuda.get_device_name()}", flush=True)
    if "exchange" in parts:
        figures += exchanges(options.rounds)
        print(table(figures), flush=True)
        holds.append(judge_exchanges(figures))
    if "steps" in parts:
        found = []
        for figure in steps(options.rounds, loops, models):
            found.append(figure)
            print(f"{waits(figure)}; {1e3 * figure.seconds_median:.2f} ms, {figure.ratio:.3f} times", flush=True)
        print(table(found, speed=False), flush=True)
        holds.append(judge_steps(found))
        figures += found
    if "cluster" in parts:
        cluster(options.seconds, models)
    if options.json:
        write(options.json, "gpu", figures)
    return max(holds, default=0)


if __name__ == "__main__":
    sys.exit(main())
