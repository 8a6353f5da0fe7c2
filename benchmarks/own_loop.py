"""A script of one's own on uneven workers: seconds to the same number of samples under each scheme.

python benchmarks/own_loop.py [--rounds 3] [--loops emulated,sleeping,loader] [--schemes bsp,esync,asp] [--epochs 10]

Three workers, of which one is three times as slow, and a server run examples/02_own_loop.py: as it is with slow steps
emulated (`--slowdown 1,1,3 --step-ms 30`), with a loop that sleeps as long, and so with a DataLoader of two processes.
Schemes run in turn; a row has the median seconds of training and how many times as fast as bsp that is. All workers
together train each sample once an epoch, so all runs train as many. Twice as fast workers are 2.33 times the speed of
the slowest three at best. The claim: asp and esync are at least 1.9 times as fast as bsp.

    overhead    one worker: processor time of `pace.loader`, at most 3 % more than of a plain DataLoader
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import torch
from _verdict import verdict
from torch import nn
from torch.utils.data import DataLoader, Dataset

import paceline

FASTER_MIN = 1.9
OVERHEAD_MAX = 0.03
STEP_S = 0.03
SLOW = (1, 1, 3)
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "02_own_loop.py"
BATCHES = "for x, y in pace.batches(dataset, batch_size=32, epochs=10):"
SLEEP = f"    __import__('threading').Event().wait({STEP_S} * {SLOW}[pace.rank])\n"


def script(loop: str, scheme: str, epochs: int) -> str:
    """The example with another scheme, and what `loop` changes."""
    text = EXAMPLE.read_text(encoding="utf-8").replace('scheme="esync"', f"scheme={scheme!r}")
    batches = BATCHES.replace("epochs=10", f"epochs={epochs}")
    if loop == "loader":
        batches = batches.replace("pace.batches", "pace.loader").replace("):", ", num_workers=2):")
    assert BATCHES in text
    at, _, rest = text.partition(BATCHES)
    comment, _, body = rest.partition("\n")
    return f"{at}{batches}{comment}\n{'' if loop == 'emulated' else SLEEP}{body}"


def seconds_of(loop: str, scheme: str, epochs: int) -> tuple[float, int]:
    """Of training, and the samples of it."""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "own.py"
        own.write_text(script(loop, scheme, epochs), encoding="utf-8")
        slow = ["--slowdown", ",".join(map(str, SLOW)), "--step-ms", f"{1000 * STEP_S:g}"] if loop == "emulated" else []
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "paceline", "launch", "-n", str(len(SLOW)), "-s", "1", *slow]
        subprocess.run([*command, "--out", str(out), sys.executable, str(own)], check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        return summary["seconds"], summary["samples"]


def race(loop: str, options: argparse.Namespace) -> list[str]:
    """One kind of loop under all schemes; returns the claims that do not hold."""
    seconds: dict[str, list[float]] = {scheme: [] for scheme in options.schemes.split(",")}
    samples = set()
    for _ in range(options.rounds):
        for scheme, found in seconds.items():
            took, trained = seconds_of(loop, scheme, options.epochs)
            found.append(took)
            samples.add(trained)
    failed = [] if len(samples) == 1 else [f"{loop}: runs of {sorted(samples)} samples"]
    medians = {scheme: statistics.median(found) for scheme, found in seconds.items()}
    for scheme, median in medians.items():
        faster = medians["bsp"] / median
        spread = f"{min(seconds[scheme]):.2f} to {max(seconds[scheme]):.2f}"
        print(f"{loop:9} {scheme:6} {median:6.2f} s ({spread})  {faster:.2f} times as fast as bsp", flush=True)
        if scheme != "bsp" and faster < FASTER_MIN:
            failed.append(f"{loop}, {scheme}: {faster:.2f} times as fast as bsp, not {FASTER_MIN}")
    return failed


# ---- overhead --------------------------------------------------------------------------------------------------
class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """As cheap as a data set with a transform gets: pictures in memory, each normalised when it is asked for."""

    def __init__(self) -> None:
        self._pictures = torch.rand(6400, 1, 28, 28)

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return (self._pictures[i] - 0.5) / 0.25, i % 10


def seconds_per_batch(loader: Iterable[object]) -> float:
    """Of making the batches of one pass, in processor time of the thread that makes them."""
    began = time.thread_time()
    batches = sum(1 for _ in loader)
    return (time.thread_time() - began) / batches


def overhead(rounds: int) -> list[str]:
    """Of making batches of 64 normalised pictures. Returns the claims that do not hold.

    Each round takes all loaders in an order of its own. The least of the rounds decides, as for `timeit`: what else
    runs on the machine empties caches, and that only ever adds time.
    """
    data, other = Pictures(), Pictures()
    model = nn.Linear(1, 1)
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="asp")
    warnings.simplefilter("ignore", UserWarning)  # of batches without a step
    loaders: dict[str, Iterable[object]] = {
        "plain": DataLoader(data, 64, shuffle=True),
        "pace.loader": pace.loader(data, 64),
        "pace.loader, a generator's order": pace.loader(other, 64, generator=torch.Generator()),
    }
    took: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name in random.sample(list(loaders), len(loaders)):
            took[name].append(1e3 * seconds_per_batch(loaders[name]))
    pace.close()
    failed, best = [], min(took["plain"])
    for name, found in took.items():
        more, median = min(found) / best - 1, statistics.median(found)
        print(f"overhead  {name:32} a batch: {min(found):.3f} ms (median {median:.3f} ms)  {more:+.1%}")
        if more > OVERHEAD_MAX:
            failed.append(f"{name}: {more:.1%} slower, not {OVERHEAD_MAX:.0%}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loops", default="emulated,sleeping,loader,overhead")
    parser.add_argument("--schemes", default="bsp,esync,asp")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    failed = []
    for loop in options.loops.split(","):
        failed += overhead(10 * options.rounds + 1) if loop == "overhead" else race(loop, options)
    print("\n".join(failed), end="\n" if failed else "")
    claim = f"asp and esync at least {FASTER_MIN} times as fast as bsp, pace.loader at most {OVERHEAD_MAX:.0%} slower"
    return verdict(claim, not failed)


if __name__ == "__main__":
    sys.exit(main())
