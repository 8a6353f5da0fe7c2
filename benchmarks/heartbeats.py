"""How long parties of a run fall silent on a busy machine, against the silence that counts as their loss.

python benchmarks/heartbeats.py [--seconds 20] [--load 0,2,8]

Four workers, two servers and the evaluator of `paceline train` on this machine, without pauses between steps (BSP, the
cnn on digits), and beside them so many processes a core that do nothing but count. Every party reports four times a
second; the coordinator's process takes down the longest time between two messages of each party, and how long its own
thread slept.

The claim is that nobody is silent for half of --dead-after (5 s). Exit code 1 when it fails.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import tempfile
import time
from collections import defaultdict
from typing import Any
from unittest import mock

from _verdict import verdict

from paceline import config as configuration
from paceline.bench.report import conditions
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent, make_supervisor
from paceline.live.coordinator.coordinator import Coordinator

DEAD_AFTER_SECONDS = 5.0


def count() -> None:
    while True:
        pass


def longest_silences(seconds: float) -> dict[str, float]:
    """By kind of party, while one run trains."""
    last: dict[str, float] = {}
    longest: dict[str, float] = defaultdict(float)
    deliver = Coordinator.deliver

    def delivered(self: Coordinator, src: Any, envelope: Any) -> None:
        now = time.monotonic()
        if self.phase.name == "TRAINING" and not self.stopping:
            before = last.get(str(src), now)
            longest[src.kind] = max(longest[src.kind], now - before)
            last[str(src)] = now
        deliver(self, src, envelope)

    with (
        tempfile.TemporaryDirectory() as out,
        LocalHost() as host,
        mock.patch.object(Coordinator, "deliver", delivered),
    ):
        values = {
            "run": {"out": f"{out}/run", "scheme": "bsp"},
            "cluster": {"workers": 4, "servers": 2, "dead_after": 1000.0, "snapshot_every": 0.0},
            "model": {"name": "cnn"},
            "data": {"name": "digits"},
            "stop": {"epochs": 0.0, "seconds": seconds},
        }
        make_supervisor(configuration.build(values), host.launcher(), Silent()).run()
    return dict(longest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--load", default="0,2,8", help="processes a core that count beside the run")
    options = parser.parse_args()
    print(conditions())
    worst = -math.inf
    for load in map(int, options.load.split(",")):
        beside = [multiprocessing.Process(target=count, daemon=True) for _ in range(load * (os.cpu_count() or 1))]
        for process in beside:
            process.start()
        try:
            found = longest_silences(options.seconds)
        finally:
            for process in beside:
                process.kill()
        worst = max(worst, *found.values())
        told = "  ".join(f"{kind} {silence:.2f} s" for kind, silence in sorted(found.items()))
        print(f"{load} busy processes a core: longest silence  {told}", flush=True)
    return verdict(f"longest silence {worst:.2f} s < {DEAD_AFTER_SECONDS / 2:g} s", worst < DEAD_AFTER_SECONDS / 2)


if __name__ == "__main__":
    raise SystemExit(main())
