"""Weighting late gradients by 1/Y against not weighting them: test error under growing staleness.

python benchmarks/papers/weighting.py [--lrs 0.01,0.03,0.1,0.3,1] [--seeds 1,2,3] [--counts 4,16] [--epochs 10]

Claim of Zhang et al. (IJCAI 2016), abstract: modulating the learning rate by the staleness of each gradient is superior
to conventional ASGD. Grouping-SGD weights by 1/Y on the same ground.
"""

from __future__ import annotations

import argparse
import sys

from common import Job, Page, Side, Sweep, Trial, axes_of, conditions, options_of, sweep, table, whole_numbers

from paceline.observe.plots.style import LINES
from paceline.sim import Cluster
from paceline.sim.cluster.model import Device, Host

JITTER = 0.1
SLOW = 4.0
"""A quarter of the workers takes so many times as long a step: a staleness that differs, and not by chance."""
NONE = Side(name="none", scheme="asp")
INVERSE = Side(name="1/Y", scheme="asp", parameters={"weighting": "inverse"})
ROOT = Side(name="1/sqrt(Y)", scheme="asp", parameters={"weighting": "power:0.5"})
SIDES = (NONE, INVERSE, ROOT)


def cluster(workers: int) -> Cluster:
    slow = max(1, workers // 4)
    hosts = [
        Host(name="fast", count=workers - slow, devices=(Device(jitter=JITTER),)),
        Host(name="slow", count=slow, devices=(Device(factor=SLOW, jitter=JITTER),)),
        Host(name="server", servers=1),
    ]
    return Cluster(hosts=tuple(hosts), step_s=0.1)


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, lrs=[0.01, 0.03, 0.1, 0.3, 1.0], seeds=[1, 2, 3])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--counts", type=whole_numbers, default=[4, 16], help="numbers of workers")
    parser.add_argument("--epochs", type=float, default=10.0)
    options = parser.parse_args(arguments)
    page = Page("weighting", "Weighting late gradients by 1/Y", options.pages, __doc__)
    found = {
        n: {
            side.name: sweep(job_of(n, options), side, options.lrs, options.seeds, error, widen=False) for side in SIDES
        }
        for n in options.counts
    }
    report(page, found, options)
    draw(page, found, options)
    page.write()
    return 0


def error(trial: Trial) -> float:
    """In percent."""
    return 100 * trial.test_error


def job_of(workers: int, options: argparse.Namespace) -> Job:
    return Job(
        cluster=cluster(workers),
        values={
            "data": {"name": options.data, "directory": options.data_dir, "batch_size": 16},
            "stop": {"epochs": options.epochs},
            "evaluation": {"every": 1.0},
        },
    )


def report(page: Page, found: dict[int, dict[str, Sweep]], options: argparse.Namespace) -> None:
    page.say(
        conditions(
            f"ASP; a quarter of the workers takes {SLOW:g} times as long a step, {100 * JITTER:.0f} % jitter. An mlp "
            f"on {options.data}, batches of 16, {options.epochs:g} epochs of all workers together, plain SGD at a "
            f"constant rate; median of seeds {', '.join(map(str, options.seeds))}."
        )
    )
    rows = []
    for workers, sides in found.items():
        stale = sides["none"].trials[options.lrs[0]][0].summary.staleness_mean
        for name, s in sides.items():
            errors = [f"{s.middle(lr):.1f}" for lr in options.lrs]
            rows.append([workers, f"{stale:.1f}", name, *errors, f"{s.best:.1f}"])
    page.say("Test error in percent after equal epochs (90 is a guess):")
    page.say(table(["workers", "staleness", "weighting", *(f"rate {lr:g}" for lr in options.lrs), "at its best"], rows))
    page.say("\n".join(verdict(workers, sides, options.lrs) for workers, sides in found.items()))
    page.say(
        "What the weighting buys is room: 1/Y divides the step by what the delay is, so a rate that suits one worker "
        "goes on working with many, and a user need not search for another. Whoever does search finds a smaller rate "
        "for plain ASP. Both readings are above: at one rate, and each at its best.\n\n"
        "Where ours differs: the paper's experiments are on Cifar-10 and ImageNet, and its abstract has no figure that "
        "ours could be held against."
    )


def verdict(workers: int, sides: dict[str, Sweep], lrs: list[float]) -> str:
    none, inverse = sides["none"], sides["1/Y"]
    worst = max(lrs, key=none.middle)
    return (
        f"- {workers} workers: {reading(inverse.middle(worst), none.middle(worst))} at rate {worst:g}, where plain ASP "
        f"does worst ({inverse.middle(worst):.1f} against {none.middle(worst):.1f} %); "
        f"{reading(inverse.best, none.best)} with each at its best ({inverse.best:.1f} at {inverse.best_lr:g} against "
        f"{none.best:.1f} % at {none.best_lr:g})."
    )


def reading(inverse: float, none: float) -> str:
    """Within half a point, about two samples of the digits, is a tie."""
    if abs(inverse - none) <= 0.5:
        return "a **tie**"
    return "the claim is **reproduced**" if inverse < none else "the claim is **NOT reproduced**"


def draw(page: Page, found: dict[int, dict[str, Sweep]], options: argparse.Namespace) -> None:
    figure, panels = axes_of(len(found))
    for axes, (workers, sides) in zip(panels, found.items(), strict=True):
        for (name, s), colour in zip(sides.items(), LINES, strict=False):
            axes.plot(options.lrs, [s.middle(lr) for lr in options.lrs], marker="o", color=colour, label=name)
        axes.set_xscale("log")
        axes.set_xlabel(f"learning rate, {workers} workers")
        axes.set_ylabel("test error, %")
        axes.legend(frameon=False, fontsize=8, title="weighting")
    page.figure(figure, "Test error by learning rate and number of workers, with and without weighting")


if __name__ == "__main__":
    sys.exit(main())
