"""Samples that a run by epochs trains, under every scheme: live, in processes over sockets, and in virtual time.

python benchmarks/budget.py [--epochs 2] [--schemes all] [--step-ms 5]

Four workers, of which one takes twice and one eight times as long for a step, train the digits for so many epochs. A
row has what was asked for and what was trained, in epochs. The claim: no run trains less, and none more than that by a
round, which is an exchange of every worker.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from _verdict import verdict

import paceline
from paceline.config import Config, build
from paceline.core.scheme import make, names
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import Summary
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import NetworkSpec

SLOWDOWN = (1, 1, 2, 8)
SAMPLES, BATCH = 1437, 32  # of the digits
STEPS = {"localsgd": 8, "postlocal": 8, "slowmo": 12, "diloco": 20, "asyncdiloco": 20, "easgd": 10, "eamsgd": 10}
"""Mini-batches of an exchange where it has more than one; in `esync` those that fit into the slowest worker's step."""


def round_of(scheme: str) -> int:
    """Its samples."""
    if scheme == "esync":
        return BATCH * sum(round(max(SLOWDOWN) / slow) for slow in SLOWDOWN)
    return BATCH * len(SLOWDOWN) * STEPS.get(scheme, 1)


def servers_of(scheme: str) -> int:
    return 0 if make(scheme, {}).Server is None else 1


def live(scheme: str, options: argparse.Namespace, host: LocalHost) -> Summary:
    with tempfile.TemporaryDirectory() as folder:
        return paceline.train(
            progress=False,
            host=host,
            scheme=scheme,
            workers=len(SLOWDOWN),
            servers=servers_of(scheme),
            slowdown=list(SLOWDOWN),
            step_ms=options.step_ms,
            epochs=options.epochs,
            out=str(Path(folder) / "run"),
        )


def virtual(scheme: str, options: argparse.Namespace) -> Summary:
    cluster = {"workers": len(SLOWDOWN), "servers": servers_of(scheme), "slowdown": list(SLOWDOWN)}
    config: Config = build(
        {
            "run": {"scheme": scheme},
            "cluster": {**cluster, "step_ms": options.step_ms},
            "stop": {"epochs": options.epochs},
        }
    )
    network = NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0)
    setting = SimulationSetup(config=config, cluster=cluster_of(config, network, lambda: 0.0), timing_only=True)
    return VirtualRun(setting, Silent()).run(leave=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--schemes", default=",".join(names()))
    parser.add_argument("--step-ms", type=float, default=5.0)
    options = parser.parse_args()
    wanted, failed = round(options.epochs * SAMPLES), []
    print(f"{'scheme':12} {'asked':>7} {'live':>7} {'virtual':>8} {'a round':>8}")
    with LocalHost() as host:
        for scheme in options.schemes.split(","):
            trained = live(scheme, options, host).samples, virtual(scheme, options).samples
            epochs = [f"{samples / SAMPLES:.3f}" for samples in trained]
            bound = round_of(scheme)
            print(f"{scheme:12} {options.epochs:7.3f} {epochs[0]:>7} {epochs[1]:>8} {bound / SAMPLES:8.3f}", flush=True)
            if not all(wanted <= samples <= wanted + bound for samples in trained):
                failed.append(scheme)
    if failed:
        print(f"not so: {', '.join(failed)}")
    return verdict(f"a run of {options.epochs:g} epochs trains them, and at most a round more", not failed)


if __name__ == "__main__":
    sys.exit(main())
