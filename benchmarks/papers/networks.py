"""AlexNet, ResNet-18 and MobileNet live under BSP and ESync, with one of three workers ten times slower.

python benchmarks/papers/networks.py [--data-dir FOLDER] [--only alexnet] [--keep FOLDER] [--target 0.75]

Every run is `paceline train` on this machine: processes, sockets, real steps. A step of worker i lasts at least the
network's `step_ms` times its slowdown. `--keep` holds the runs' folders; runs that are in it are not made again.

Claims of the preprint (Li et al. 2019, table of networks): ESync reaches a test accuracy of 0.8 on Fashion-MNIST 27
times as fast as SSGD with AlexNet, 7 times with ResNet-18 and twice with MobileNet, where the slowest of six devices
takes about 117 times as long as the fastest.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from common import PAGES, Page, axes_of, shown, table, times

import paceline
from paceline.core.trace import Evaluated
from paceline.engine.data import load as load_named
from paceline.engine.data.dataset import Dataset, Splits
from paceline.engine.specs import DataRecipe
from paceline.launch.local.launcher import LocalHost
from paceline.observe.plots.style import LINES
from paceline.observe.runs.summary import Summary, read_summary
from paceline.observe.trace.trace_file import read_trace

SLOWDOWN = (1, 1, 10)
BATCH = 16
SIDE = 32
TRAINED, TESTED = 20_000, 1000
"""Pictures: enough for less than one epoch, and few enough that evaluation does not slow the workers down."""
FOLDER_VARIABLE = "PAPERS_DATA_DIR"
SCHEMES = {"bsp": "SSGD", "esync": "ESync"}


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network of the paper, made narrow enough for a machine of two cores. step_ms: of the fast workers."""

    name: str
    width: float
    lr: float
    step_ms: float
    paper: float


NETWORKS = {
    "alexnet": Network(name="AlexNet", width=0.125, lr=0.03, step_ms=120, paper=27),
    "resnet18": Network(name="ResNet-18", width=0.125, lr=0.1, step_ms=240, paper=7),
    "mobilenet": Network(name="MobileNet", width=0.25, lr=0.1, step_ms=240, paper=2),
}


def load() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Called by the runs: the first pictures of Fashion-MNIST, at 32 x 32."""
    folder = os.environ.get(FOLDER_VARIABLE, "")
    splits: Splits = load_named(DataRecipe(name="fashion-mnist", directory=folder))

    def part(data: Dataset, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.nn.functional.interpolate(data.x[:count], (SIDE, SIDE), mode="bilinear", antialias=True)
        return x.contiguous(), data.y[:count]

    return part(splits.train, TRAINED), part(splits.test, TESTED)


def trained(model: str, scheme: str, folder: Path, options: argparse.Namespace, host: LocalHost) -> None:
    """Makes a run in `folder`, unless it is there."""
    if (folder / "summary.json").exists():
        return
    network = NETWORKS[model]
    paceline.train(
        progress=False,
        host=host,
        scheme=scheme,
        lr=network.lr,
        seed=options.seed,
        data=f"{Path(__file__).resolve()}:load",
        batch_size=BATCH,
        model=model,
        width=network.width,
        workers=len(SLOWDOWN),
        slowdown=list(SLOWDOWN),
        step_ms=network.step_ms,
        target_accuracy=options.target,
        seconds=options.seconds,
        eval_every=4,
        out=str(folder),
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="", help="folder with the files of Fashion-MNIST (default: download)")
    parser.add_argument("--only", default="", help=f"one of {', '.join(NETWORKS)}: make its runs, and no page")
    parser.add_argument("--scheme", default="", help="with --only: one of bsp, esync")
    parser.add_argument("--keep", type=Path, help="folder for the runs (default: one that is removed)")
    parser.add_argument("--target", type=float, default=0.75, help="test accuracy (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=540, help="give a run up after so long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pages", type=Path, default=PAGES, help="where the page goes (default: docs/papers)")
    options = parser.parse_args(arguments)
    os.environ[FOLDER_VARIABLE] = options.data_dir
    with tempfile.TemporaryDirectory() as passing, LocalHost() as host:
        kept = options.keep or Path(passing)
        for model in [options.only] if options.only else NETWORKS:
            for scheme in [options.scheme] if options.scheme else SCHEMES:
                trained(model, scheme, kept / f"{model}-{scheme}", options, host)
                print(f"{model} {scheme}: {run_of(kept / f'{model}-{scheme}').seconds:.1f} s", flush=True)
        if not options.only:
            page_of(kept, options)
    return 0


# ---- the page --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run folder says. curve: seconds and test accuracy of every evaluation."""

    summary: Summary
    curve: list[tuple[float, float]]

    @property
    def seconds(self) -> float:
        """Infinite when the target was missed."""
        return math.inf if self.summary.seconds_to_target is None else self.summary.seconds_to_target

    @property
    def steps(self) -> str:
        return ", ".join(str(worker.steps) for worker in self.summary.workers)

    @property
    def step_ms(self) -> str:
        """Measured mean by worker."""
        return ", ".join(f"{1000 * w.seconds_computing / max(1, w.steps):.0f}" for w in self.summary.workers)


def run_of(folder: Path) -> Run:
    summary = read_summary(folder / "summary.json")
    curve = [
        (record.at, record.accuracy) for record in read_trace(folder / "trace.jsonl") if isinstance(record, Evaluated)
    ]
    return Run(summary=summary, curve=curve)


def page_of(kept: Path, options: argparse.Namespace) -> None:
    page = Page("networks", "AlexNet, ResNet-18 and MobileNet, live", options.pages, __doc__)
    runs = {(model, scheme): run_of(kept / f"{model}-{scheme}") for model in NETWORKS for scheme in SCHEMES}
    page.say(
        f"Live runs on a machine of {os.cpu_count()} cores, torch {torch.__version__.split('+')[0]}: three workers and "
        f"one server, shared memory, {TRAINED:,} pictures of Fashion-MNIST enlarged to {SIDE} x {SIDE} and {TESTED:,} "
        f"to test, batches of {BATCH} a worker, plain SGD at one rate for both schemes, seed {options.seed}. Slowdowns "
        f"{', '.join(map(str, SLOWDOWN))}. The networks are the paper's with narrower layers, because two cores carry "
        "no more; channels and hidden units are multiplied by the width."
    )
    page.say(f"## Seconds to a test accuracy of {options.target:g}")
    rows = []
    for model, network in NETWORKS.items():
        ssgd, esync = runs[model, "bsp"], runs[model, "esync"]
        ratio = ssgd.seconds / esync.seconds
        rows.append(
            [network.name, f"{network.width:g}", f"{network.lr:g}", *(shown(r.seconds, " s") for r in (ssgd, esync)),
             times(ratio), f"{network.paper:g} times"]
        )  # fmt: skip
    page.say(table(["network", "width", "rate", "SSGD", "ESync", "SSGD / ESync", "paper"], rows))
    page.say(
        "The paper's slowest device is 117 times slower than its fastest, ours 10 times, so its ratios are no bounds "
        f"for ours. With local work a round of ESync has {(2 * SLOWDOWN[2] + 1) / 3:.0f} times the steps of one of "
        "SSGD; more than that only the better start of averaged local steps can give. " + verdict(runs)
    )
    page.say("What the workers did:")
    page.say(
        table(
            ["network", "scheme", "steps by worker", "ms a step, measured", "samples/s", "accuracy at the end"],
            [
                [
                    NETWORKS[model].name,
                    SCHEMES[scheme],
                    run.steps,
                    run.step_ms,
                    shown(run.summary.samples_per_second),
                    f"{run.summary.test_accuracy or 0:.3f}",
                ]
                for (model, scheme), run in runs.items()
            ],
        )
    )
    draw(page, runs, options.target)
    page.write()


def verdict(runs: dict[tuple[str, str], Run]) -> str:
    ratios = {NETWORKS[m].name: runs[m, "bsp"].seconds / runs[m, "esync"].seconds for m in NETWORKS}
    faster = [name for name, ratio in ratios.items() if ratio > 1]
    if len(faster) < len(ratios):
        return f"The claim that ESync is faster holds for {', '.join(faster) or 'none'} only: NOT reproduced."
    ordered = ratios["AlexNet"] > ratios["ResNet-18"] > ratios["MobileNet"]
    order = "The paper's order of the networks is reproduced." if ordered else (
        "The paper's order of the networks (AlexNet, ResNet-18, MobileNet) is NOT reproduced."
    )  # fmt: skip
    return f"ESync is faster with each of them: reproduced. {order}"


def draw(page: Page, runs: dict[tuple[str, str], Run], target: float) -> None:
    figure, axes = axes_of(len(NETWORKS))
    for one, (model, network) in zip(axes, NETWORKS.items(), strict=True):
        for (scheme, name), colour in zip(SCHEMES.items(), LINES, strict=False):
            curve = runs[model, scheme].curve
            one.plot([at for at, _ in curve], [accuracy for _, accuracy in curve], label=name, color=colour)
        one.axhline(target, color="#767676", linestyle=":", linewidth=1)
        one.set_title(network.name, fontsize=10)
        one.set_xlabel("seconds")
        one.legend(frameon=False, fontsize=8)
    axes[0].set_ylabel("test accuracy")
    page.figure(figure, "Test accuracy against seconds of three networks under SSGD and ESync")


if __name__ == "__main__":
    sys.exit(main())
