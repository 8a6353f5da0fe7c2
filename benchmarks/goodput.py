"""Goodput against failures: share of the workers' capacity that ends in the model, by scheme, simulated.

python benchmarks/goodput.py [--workers 8] [--hours 1] [--out FIGURE.png]

Workers of equal speed make steps of 1 s. Each fails at random times, with exponential gaps of the given mean, and is
back after --recovery-s; its failure is noticed after --notice-s. Schemes: bsp (elastic: the others go on without it),
esync, diloco, decoupled, asp. `bsp, restart` is computed, not simulated by messages: after any failure the whole run
stands still for the recovery and goes on from its last checkpoint, one every --checkpoint-s.

Decoupled DiLoCo (arXiv 2604.21428) reports 88 % against 27 % for data parallelism. We had no text of it. Others who had
it give 2.4 million chips in 8 learners and one failure a chip and year: one of the 8 fails every 105 s. The recovery is
not known. It is 14 s here, at which 8 independent learners are up 88 % of the time, so the 88 % is put in; what the
script shows is what the other schemes make of the same failures.

Claim: at that rate decoupled comes within 5 points of the time that its workers are up, and before bsp, with a restart
or elastic, and diloco. Exit code 1 when it fails.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from _verdict import verdict

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.observe.runs.goodput import Goodput
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Fault, Host

SCHEMES = {"bsp": {}, "esync": {}, "diloco": {"h": 24}, "decoupled": {"h": 24}, "asp": {}}
RESTART = "bsp, restart"
PAPER_MTBF_S = 8 * 365 * 86400 / 2_400_000
"""Seconds between two failures of one of 8 learners of 300,000 chips each, with one failure a chip and year."""
RATES = (0.125, 0.25, 0.5, 1.0, 2.0)
"""Failures, in multiples of the paper's."""
SIZES = (2, 4, 8, 16, 32)


def failures(workers: int, mtbf_s: float, recovery_s: float, seconds: float, seed: int) -> list[tuple[float, int]]:
    """Returns when which worker fails. One that is down does not fail; at least one worker stays up."""
    found: list[tuple[float, int]] = []
    for rank in range(workers):
        draw, at = random.Random(f"{seed}/{rank}"), 0.0
        while (at := at + draw.expovariate(1 / mtbf_s)) < seconds:
            found.append((at, rank))
            at += recovery_s
    kept: list[tuple[float, int]] = []
    for at, rank in sorted(found):
        if sum(at - before <= recovery_s for before, _ in kept) < workers - 1:
            kept.append((at, rank))
    return kept


def simulated(scheme: str, fails: list[tuple[float, int]], workers: int, job: argparse.Namespace) -> float:
    """Returns the goodput of a scheme under these failures."""
    faults = tuple(Fault(kind="crash", at_s=at, for_s=job.recovery_s, workers=(rank,)) for at, rank in fails)
    hosts = [Host(name=f"w{rank}", devices=(Device(),)) for rank in range(workers)]
    cluster = Cluster(
        hosts=(*hosts, Host(name="server", servers=1)), step_s=1.0, faults=faults, suspect_after_s=job.notice_s
    )
    counted, seconds = Goodput(), job.hours * 3600
    work = LocalSteps(lambda rank, rng: 1.0, samples=lambda rank: 32)
    made = make(scheme, SCHEMES[scheme])
    Simulation(made, Ghost(1_000_000), work, cluster=cluster, seed=1, trace=counted.add).run(until=seconds)
    return counted.share(workers, seconds) or 0.0


def restarted(fails: list[tuple[float, int]], job: argparse.Namespace) -> float:
    """Returns the goodput of a run that stands still after any failure and goes back to its last checkpoint."""
    useful, since, up_at = 0.0, 0.0, 0.0  # kept in checkpoints; trained since the last; when it runs again
    for at, _ in [*fails, (job.hours * 3600, -1)]:
        if at <= up_at:  # it stands still already, and waits for this one too
            up_at = max(up_at, at + job.notice_s + job.recovery_s)
            continue
        since += at - up_at
        useful += since - since % job.checkpoint_s
        since, up_at = 0.0, at + job.notice_s + job.recovery_s
    return useful / (job.hours * 3600)


def of_all(workers: int, mtbf_s: float, job: argparse.Namespace) -> dict[str, float]:
    fails = failures(workers, mtbf_s, job.recovery_s, job.hours * 3600, seed=1)
    return {RESTART: restarted(fails, job), **{name: simulated(name, fails, workers, job) for name in SCHEMES}}


def show(title: str, found: dict[str, dict[str, float]]) -> None:
    names = [RESTART, *SCHEMES]
    print(f"\n{title:<24}" + "".join(f"{name:>14}" for name in names))
    for label, row in found.items():
        print(f"{label:<24}" + "".join(f"{row[name]:>13.0%} " for name in names))


def draw(by_rate: dict[str, dict[str, float]], by_size: dict[str, dict[str, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    from paceline.observe.plots import style

    drawn = Figure(figsize=(12, 5), layout="constrained")
    for place, (name, found) in enumerate((("failures, times the paper's", by_rate), ("workers", by_size)), start=1):
        axes = drawn.add_subplot(1, 2, place)
        for scheme in (RESTART, *SCHEMES):
            axes.plot(list(found), [row[scheme] for row in found.values()], marker="o", label=scheme)
        axes.set(xlabel=name, ylabel="goodput", ylim=(0, 1))
        axes.legend()
    style.save(drawn, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--hours", type=float, default=0.5, help="virtual hours of each run")
    parser.add_argument("--recovery-s", type=float, default=14.0)
    parser.add_argument("--notice-s", type=float, default=5.0)
    parser.add_argument("--checkpoint-s", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    job = parser.parse_args()
    by_rate = {f"{rate:g}": of_all(job.workers, PAPER_MTBF_S / rate, job) for rate in RATES}
    by_size = {str(n): of_all(n, PAPER_MTBF_S, job) for n in SIZES}
    show("failures, times paper's", by_rate)
    show("workers", by_size)
    if job.out:
        draw(by_rate, by_size, job.out)
    here = by_rate["1"]
    up = PAPER_MTBF_S / (PAPER_MTBF_S + job.recovery_s)
    print(f"\nworkers are up {up:.0%} of the time")
    best = max(here[name] for name in (RESTART, "bsp", "diloco"))
    claim = f"decoupled, {here['decoupled']:.0%}, is within 5 points of that and before bsp and diloco, {best:.0%}"
    return verdict(claim, here["decoupled"] > max(up - 0.05, best))


if __name__ == "__main__":
    raise SystemExit(main())
