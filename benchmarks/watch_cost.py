"""The live page: how soon it names a worker that becomes slow, and whether what it says of the cost is true.

python benchmarks/watch_cost.py [--schemes asp,esync] [--step-ms 100]

Four workers of a script train a small network under BSP, as processes on this machine; a step of each sleeps for
--step-ms. After a while of even pace worker 3 sleeps four times as long. This script looks at the page of the run, as
a browser does, and at the simulator, which is told how long a round took while the pace was even, and by how much
worker 3 then sleeps longer, and nothing else:

  named     seconds from the first slow step on until the page names worker 3 and nobody else
  cost      samples/s that the three others would do without it, more than all four do now: as stated, and simulated
            with four workers and with three

The claims: named within 10 s, and the stated cost within 20 % of the simulated one. Besides, without a claim: what the
page says other schemes would give there, what a simulation of each gives, and what a live run of each does.
"""

from __future__ import annotations

import argparse
import contextlib
import http.cookiejar
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.bench.report import conditions
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Host

FACTOR = 4
BATCH = 32
EVEN_S, SETTLED_S, LIVE_S = 10.0, 12.0, 12.0
NAMED_MAX_S, COST_MAX = 10.0, 0.2
PATIENCE_S = 120.0
SIMULATED_S = 60.0

WORKER = """
import sys, time
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import TensorDataset
import paceline

scheme, step_s, sign = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
data = TensorDataset(torch.randn(4096, 64), torch.randint(10, (4096,)))
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.05), scheme=scheme)
for x, y in pace.batches(data, batch_size=%d, epochs=10**6):
    time.sleep(step_s * (%d if pace.rank == 3 and sign.exists() else 1))
    nn.functional.cross_entropy(model(x), y).backward()
    pace.step()
pace.close()
""" % (BATCH, FACTOR)  # noqa: UP031

Look = Callable[[], dict[str, Any]]


@contextlib.contextmanager
def watched(scheme: str, step_s: float, sign: Path) -> Iterator[Look]:
    """A live run of the script, and what its page is told. Worker 3 is slow while `sign` exists."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "worker.py"
        script.write_text(WORKER)
        launch = ["launch", "-n", "4", "-s", "1", "--watch", "--out", f"{folder}/run"]
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *launch, sys.executable, str(script), scheme, str(step_s), str(sign)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert process.stderr is not None
        try:
            found = re.search(r"http\S+(?=/\?token)\S+", process.stderr.readline())
            assert found, "the run has not said where its page is"
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
            browser.open(found[0], timeout=10).read()
            state = found[0].partition("/?")[0] + "/state"
            yield lambda: json.loads(browser.open(state, timeout=10).read())
        finally:
            process.send_signal(signal.SIGINT)
            process.stderr.read()
            process.wait(timeout=PATIENCE_S)
            process.stderr.close()


def until(look: Look, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    begun = time.monotonic()
    while not holds(told := look()):
        if time.monotonic() > begun + PATIENCE_S:
            raise SystemExit(f"{what}: not within {PATIENCE_S:.0f} s; the page says: {told['holdup']['sentence']}")
        time.sleep(0.1)
    return told


def simulated(scheme: str, step_s: float, factors: tuple[float, ...]) -> float:
    """Samples a second of workers whose steps take so many times `step_s`."""
    hosts = [Host(name=f"w{n}", devices=(Device(factor=factor),)) for n, factor in enumerate(factors)]
    cluster = Cluster(hosts=(*hosts, Host(name="server", servers=1)), step_s=step_s)
    work = LocalSteps(lambda rank, rng: step_s, samples=lambda rank: BATCH)
    run = Simulation(make(scheme, {}), Ghost(1000), work, cluster=cluster, watched=False)
    run.run(until=SIMULATED_S)
    return BATCH * sum(run.steps) / run.now


def named(step_s: float) -> tuple[float, float, dict[str, Any]]:
    """Seconds of a round at even pace, and until the page names worker 3; what it says after ten seconds and later."""
    with tempfile.TemporaryDirectory() as folder:
        sign = Path(folder) / "slow"
        with watched("bsp", step_s, sign) as look:
            even = until(look, lambda told: told["now"] > EVEN_S, "the run goes on")
            if even["headline"]["ranks"]:
                raise SystemExit(f"the pace was to be even, but the page says: {even['holdup']['sentence']}")
            sign.touch()
            slow_at, begun = even["now"], time.monotonic()
            round_s = 4 * BATCH / even["rate"]
            until(look, lambda told: told["headline"]["ranks"] == [3], "worker 3 is named")
            seconds = time.monotonic() - begun
            told = until(look, lambda told: told["now"] > slow_at + SETTLED_S, "the run goes on")
            about = until(look, lambda told: told["foretold_at"] > slow_at + 5, "other schemes are foretold")
            return round_s, seconds, told | {"forecast": about["forecast"]}


def live(scheme: str, step_s: float) -> float:
    """Samples a second of a run of that scheme with a slow worker 3, as its page says."""
    with tempfile.TemporaryDirectory() as folder:
        sign = Path(folder) / "slow"
        sign.touch()
        with watched(scheme, step_s, sign) as look:
            told = until(look, lambda told: told["now"] > LIVE_S, "the run goes on")
            return float(told["samples"] / told["now"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", default="asp,esync", help="others to run live, besides BSP; may be empty")
    parser.add_argument("--step-ms", type=float, default=100)
    options = parser.parse_args()
    step_s = options.step_ms / 1000
    print(f"{conditions()}; steps of {options.step_ms:g} ms, worker 3 times {FACTOR} after {EVEN_S:.0f} s")
    round_s, seconds, told = named(step_s)
    slowed = (1.0, 1.0, 1.0, 1 + (FACTOR - 1) * step_s / round_s)
    stated = told["headline"].get("cost", 0)
    cost = simulated("bsp", round_s, (1, 1, 1)) - simulated("bsp", round_s, slowed)
    off = stated / cost - 1
    print(told["headline"]["sentence"])
    print(f"named after {seconds:.1f} s, claimed within {NAMED_MAX_S:.0f} s")
    print(f"cost stated {stated} samples/s, simulated {cost:.0f}: {off:+.0%}, claimed within {COST_MAX:.0%}")
    print(f"{'scheme':<10} {'foretold':>9} {'simulated':>10} {'live':>7}  samples/s")
    forecast = {row["scheme"]: row["rate"] for row in told["forecast"]}
    for scheme in ["bsp", *filter(None, options.schemes.split(","))]:
        done = told["headline"]["rate"] if scheme == "bsp" else live(scheme, step_s)
        there = simulated(scheme, round_s, slowed)
        print(f"{scheme:<10} {forecast.get(scheme, 0):>9.0f} {there:>10.0f} {done:>7.0f}", flush=True)
    holds = seconds <= NAMED_MAX_S and abs(off) <= COST_MAX
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
