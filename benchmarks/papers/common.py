"""What the scripts of this folder share: trials in virtual time, the best rate of a grid, a dated page with a figure.

A trial trains the real model on the real data under the real scheme; machines and clock are simulated. The same options
give the same figures on any machine, up to how its torch rounds.
"""

from __future__ import annotations

import argparse
import datetime
import math
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline import config as configuration
from paceline.core.errors import Diverged
from paceline.launch.local.train import Silent
from paceline.observe.plots.style import LINES
from paceline.observe.runs.summary import Summary
from paceline.runtime.simulated.setup import SimulationSetup
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim import Cluster

PAGES = Path(__file__).resolve().parents[2] / "docs" / "papers"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison: a scheme with its parameters, as `name` in tables. `allreduce`: who computes means."""

    name: str
    scheme: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    allreduce: str = "auto"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """summary: None where the model diverged. curve: moment in virtual seconds, test accuracy and test loss of every
    look at the model. samples: training samples seen by then.
    """

    summary: Summary | None
    curve: list[tuple[float, float, float]]
    samples: list[int] = field(default_factory=list)

    @property
    def seconds_to_target(self) -> float:
        """Infinite when the target was missed, or the model diverged."""
        seconds = self.summary.seconds_to_target if self.summary else None
        return math.inf if seconds is None else seconds

    @property
    def test_error(self) -> float:
        if self.summary is None:
            return math.inf
        assert self.summary.test_accuracy is not None
        return 1 - self.summary.test_accuracy


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all sides of a comparison share. `values`: settings by section and key, as in a configuration file."""

    cluster: Cluster
    values: Mapping[str, Mapping[str, Any]]
    timing_only: bool = False
    model_length: int = 0

    def trial(self, side: Side, *, lr: float = 0.1, seed: int = 1) -> Trial:
        values = {section: dict(entries) for section, entries in self.values.items()}
        values["run"] = {"scheme": side.scheme, "seed": seed}
        values["cluster"] = {
            "workers": self.cluster.workers,
            "servers": self.cluster.servers,
            "step_ms": self.cluster.step_s * 1000,
            "allreduce": side.allreduce,
        }
        # Each side takes its best rate, as in the papers: none is scaled behind its back.
        values.setdefault("optimizer", {}).update(lr=lr, lr_scale="none")
        values[side.scheme] = dict(side.parameters)
        setting = SimulationSetup(
            config=configuration.build(values),
            cluster=self.cluster,
            timing_only=self.timing_only,
            model_length=self.model_length,
        )
        run = VirtualRun(setting, Silent())
        try:
            summary = run.run(leave=False)
        except Diverged:  # at too large a rate; others are tried, too
            summary = None
        return Trial(
            summary=summary,
            curve=[(e.at, e.accuracy, e.loss) for e in run.evaluations],
            samples=[e.samples for e in run.evaluations],
        )


def full_batches(batch_size: int, workers: int) -> dict[str, Any]:
    """Data for timing: no batch at the end of a share is smaller than the others."""
    return {"name": "synthetic", "samples": 16 * batch_size * workers, "batch_size": batch_size}


Score = Callable[[Trial], float]
"""Of one trial; less is better."""


def to_target(trial: Trial) -> float:
    return trial.seconds_to_target


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Trials by rate, one for each seed, and what they were scored by."""

    trials: Mapping[float, list[Trial]]
    score: Score

    def scores(self, lr: float) -> list[float]:
        return [self.score(trial) for trial in self.trials[lr]]

    def middle(self, lr: float) -> float:
        """Median over the seeds; infinite if one of them missed the target."""
        scores = self.scores(lr)
        return math.inf if math.inf in scores else statistics.median(scores)

    def cell(self, lr: float) -> str:
        """For a table of rates."""
        return shown(self.middle(lr)) if lr in self.trials else "not tried"

    @property
    def best_lr(self) -> float:
        return min(self.trials, key=self.middle)

    @property
    def best(self) -> float:
        """Median over the seeds, at the best rate."""
        return self.middle(self.best_lr)

    @property
    def curve(self) -> list[tuple[float, float, float]]:
        """Of the first seed, at the best rate."""
        return self.trials[self.best_lr][0].curve


def sweep(
    job: Job,
    side: Side,
    lrs: Iterable[float],
    seeds: Sequence[int],
    score: Score = to_target,
    *,
    widen: bool = True,
) -> Sweep:
    """Every rate with every seed; `widen`: and rates beyond while the best is at an edge. Prints a line a rate.

    A rate that misses the target with one seed is given up.
    """
    found = Sweep(trials={lr: trials_at(job, side, lr, seeds, score) for lr in lrs}, score=score)
    while widen and (lr := beyond(found)) is not None:
        found = Sweep(trials={**found.trials, lr: trials_at(job, side, lr, seeds, score)}, score=score)
    return found


def trials_at(job: Job, side: Side, lr: float, seeds: Iterable[int], score: Score) -> list[Trial]:
    trials: list[Trial] = []
    for seed in seeds:
        trials.append(job.trial(side, lr=lr, seed=seed))
        if math.isinf(score(trials[-1])):
            break
    print(f"{side.name:<24} lr {lr:<7g} {', '.join(f'{score(trial):.4g}' for trial in trials)}", flush=True)
    return trials


BEYOND = 3.0
"""How much larger or smaller the next rate is."""
RATES_MAX = 7


def beyond(found: Sweep) -> float | None:
    """The rate to try next: beyond the edge that the best of several lies on, or a smaller one if all have missed."""
    tried = sorted(found.trials)
    if len(tried) == 1 or len(tried) >= RATES_MAX:
        return None
    if found.best_lr == tried[0] or math.isinf(found.best):
        return float(f"{tried[0] / BEYOND:.1g}")
    return float(f"{tried[-1] * BEYOND:.1g}") if found.best_lr == tried[-1] else None


def rates_of(sweeps: Iterable[Sweep]) -> list[float]:
    """All that were tried by any."""
    return sorted({lr for one in sweeps for lr in one.trials})


# ---- options ---------------------------------------------------------------------------------------------------
def options_of(doc: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """The options that every script has; `defaults` are its own, by name."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="", help="folder with the files of Fashion-MNIST (default: download)")
    parser.add_argument(
        "--lrs", type=numbers, help="learning rates to begin with; each side takes its best (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=whole_numbers, help="(default: %(default)s)")
    parser.add_argument("--pages", type=Path, default=PAGES, help="where the page goes (default: docs/papers)")
    parser.set_defaults(**defaults)
    return parser


def add_network_options(parser: argparse.ArgumentParser, page: str) -> None:
    """The options of scripts that can be run with the paper's own network and size of pictures."""
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="mlp", help="(default: %(default)s)")
    parser.add_argument("--width", type=float, default=1.0, help="(default: %(default)s)")
    parser.add_argument("--resize", type=int, default=0, help="side of the pictures in pixels (default: as they are)")
    parser.add_argument("--page", default=page, help="name of the page (default: %(default)s)")


def task_of(options: argparse.Namespace) -> str:
    """What is trained, as a sentence has it."""
    width = "" if options.width == 1 else f" of width {options.width:g}"
    side = f" at {options.resize} x {options.resize}" if options.resize else ""
    return f"{options.model}{width} on {options.data}{side}"


def task_values(options: argparse.Namespace, **data: Any) -> dict[str, Mapping[str, Any]]:
    """The same as settings; `data`: more of that section."""
    return {
        "data": {"name": options.data, "directory": options.data_dir, "resize": options.resize, **data},
        "model": {"name": options.model, "width": options.width},
    }


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def whole_numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


# ---- the page --------------------------------------------------------------------------------------------------
def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def shown(value: float, unit: str = "") -> str:
    """For a table: four digits, or that there is nothing to show."""
    if not math.isfinite(value):
        return "missed"
    return f"{value:,.0f}{unit}" if abs(value) >= 1000 else f"{value:.3g}{unit}"


def times(value: float) -> str:
    """A ratio; of two times that were both missed there is none."""
    if math.isnan(value):
        return "none"
    return "any number of times" if math.isinf(value) else f"{value:.3g} times"


def conditions(*parts: str) -> str:
    where = f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__.split('+')[0]}"
    return " ".join(["Virtual time, real training.", *parts, f"Computed on {where}."])


class Page:
    """Gathers what a script says, prints it, and writes it to NAME.md beside NAME.png.

    It opens with the paper's claim, which is the last paragraph of `about`, the script's docstring.
    """

    def __init__(self, name: str, title: str, folder: Path, about: str | None, script: str = "") -> None:
        self._name, self._folder = name, folder
        made = f"{datetime.date.today()}, by `benchmarks/papers/{script or name}.py`."
        self._parts = [f"# {title}", made, claim_of(about or "")]

    def say(self, text: str) -> None:
        print(text, flush=True)
        self._parts.append(text)

    def figure(self, figure: Figure, alt: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(self._folder / f"{self._name}.png", dpi=80)
        self._parts.append(f"![{alt}]({self._name}.png)")

    def write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{self._name}.md").write_text("\n\n".join(self._parts) + "\n", encoding="utf-8")


def claim_of(about: str) -> str:
    """The last paragraph, as one line."""
    return " ".join(about.strip().split("\n\n")[-1].split())


def axes_of(columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(5.2 * columns, 3.6), layout="constrained")
    axes = [figure.add_subplot(1, columns, place + 1) for place in range(columns)]
    for one in axes:
        one.grid(color="#E6E6E6")
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def curves(axes: Axes, sweeps: Mapping[str, Sweep], *, target: float, log: bool = False) -> None:
    """Test accuracy against virtual seconds, each side at its best rate, first seed; a dotted line at the target."""
    curves_of(axes, {name: found.curve for name, found in sweeps.items()}, target=target, log=log)


Curve = Sequence[tuple[float, float, float]]
"""As in `Trial`."""


def curves_of(axes: Axes, sides: Mapping[str, Curve], *, target: float, log: bool = False) -> None:
    """Test accuracy against virtual seconds; a dotted line at the target."""
    for (name, curve), colour in zip(sides.items(), LINES, strict=False):
        axes.plot([at for at, _, _ in curve], [a for _, a, _ in curve], label=name, color=colour)
    axes.axhline(target, color="#767676", linestyle=":", linewidth=1)
    if log:
        axes.set_xscale("log")
    axes.set_xlabel("virtual seconds")
    axes.set_ylabel("test accuracy")
    axes.legend(frameon=False, fontsize=8)


def bars(axes: Axes, heights: Mapping[str, float], label: str) -> None:
    axes.bar(list(heights), list(heights.values()), color=LINES[: len(heights)])
    axes.tick_params(axis="x", labelsize=8)
    axes.set_ylabel(label)
