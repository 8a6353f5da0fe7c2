"""Language models on four unlike workers: the DiLoCo family, bsp and asp, each at its best rates of one grid.

python benchmarks/papers/lm.py [--lrs 0.001,0.003,0.01,0.03] [--outer-lrs 0.2,0.4,0.7,1] [--steps 800] [--h 8]

Claims: a scheme of the DiLoCo family reaches about the loss of synchronous training on the same tokens, with a small
part of its traffic (Douillard et al. 2023); without waiting (Liu et al. 2024; Decoupled DiLoCo, 2026), without an
all-reduce (NoLoCo, 2025), with Muon inside (MuLoCo, 2025) and with two bits of a few values (SparseLoCo, 2025) as well.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import PAGES, Job, Page, Side, Trial, axes_of, conditions, numbers, shown, table
from matplotlib.axes import Axes

from paceline.observe.plots.style import LINES
from paceline.sim import Cluster
from paceline.sim.cluster.model import Device, Host, NetworkSpec

CONTEXT, WIDTH, DEPTH = 64, 0.5, 2
BATCH = 16
STEP_S = 0.1
FACTORS = (1.0, 1.0, 2.0, 4.0)
MEGABITS = 10.0
DIVERGED = 10.0
"""Nats: more than twice the loss of guessing."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One scheme. outer: the name of its outer learning rate, if it has one. servers: 0 where it does without."""

    scheme: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outer: str = ""
    servers: int = 1

    def side(self, rate: float | None) -> Side:
        parameters = {**self.parameters, **({self.outer: rate} if self.outer and rate is not None else {})}
        return Side(name=self.scheme, scheme=self.scheme, parameters=parameters)


def contenders(h: int) -> list[Contender]:
    local = {"h": h}
    return [
        Contender(scheme="bsp"),
        Contender(scheme="asp"),
        Contender(scheme="diloco", parameters=local, outer="outer_lr"),
        Contender(scheme="asyncdiloco", parameters=local, outer="outer_lr"),
        Contender(scheme="decoupled", parameters={**local, "fragments": 2}, outer="outer_lr"),
        Contender(scheme="muloco", parameters=local, outer="outer_lr"),
        Contender(scheme="noloco", parameters=local, outer="beta", servers=0),
        Contender(scheme="sparseloco", parameters=local, outer="alpha"),
    ]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a scheme reached at its best rates. outer: of the grid; None where it has none."""

    lr: float
    outer: float | None
    trial: Trial

    @property
    def loss(self) -> float:
        return loss_of(self.trial)


def cluster(servers: int) -> Cluster:
    hosts = tuple(
        Host(name=f"site-{rank}", devices=(Device(factor=factor, jitter=0.05),)) for rank, factor in enumerate(FACTORS)
    )
    network = NetworkSpec(latency_s=0.02, bandwidth_gbps=MEGABITS / 1000)
    server = Host(name="server", servers=1, bandwidth_gbps=len(FACTORS) * MEGABITS / 1000)
    return Cluster(hosts=(*hosts, *[server] * servers), step_s=STEP_S, network=network)


def job(contender: Contender, options: argparse.Namespace) -> Job:
    return Job(
        cluster=cluster(contender.servers),
        values={
            "data": {"name": "text", "file": options.text, "context": CONTEXT, "batch_size": BATCH},
            "model": {"name": "gpt", "width": WIDTH, "depth": DEPTH},
            "optimizer": {
                "name": "muon" if contender.scheme == "muloco" else "adamw",
                "weight_decay": 0.1,
                "clip_norm": 0.0,
            },
            "stop": {"epochs": 0.0, "samples": options.steps * BATCH},
            "evaluation": {"every": options.every},
        },
    )


def loss_of(trial: Trial) -> float:
    loss = trial.summary.test_loss if trial.summary else None
    return loss if loss is not None and math.isfinite(loss) else math.inf


def middle(options: argparse.Namespace) -> float:
    """The outer rate at which learning rates are compared: by default that of DiLoCo's authors."""
    rates: list[float] = options.outer_lrs
    return rates[len(rates) // 2]


def best(contender: Contender, options: argparse.Namespace) -> Found:
    """The best learning rate at the middle outer rate, then the best outer rate at that."""
    work = job(contender, options)

    def tried(lr: float, outer: float | None) -> Found:
        found = Found(lr=lr, outer=outer, trial=work.trial(contender.side(outer), lr=lr, seed=options.seed))
        at = "" if outer is None else f", {contender.outer} {outer:g}"
        print(f"{contender.scheme:<12} lr {lr:g}{at}: {found.loss:.3f} [{time.process_time():.0f} s]", flush=True)
        return found

    first = middle(options) if contender.outer else None
    winner = min((tried(lr, first) for lr in options.lrs), key=lambda found: found.loss)
    if not contender.outer:
        return winner
    others = [tried(winner.lr, outer) for outer in options.outer_lrs if outer != first]
    return min((winner, *others), key=lambda found: found.loss)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default="", help="file to learn (default: Python's standard library)")
    parser.add_argument("--schemes", default="", help="some of them, with commas between (default: all)")
    parser.add_argument("--lrs", type=numbers, default=[0.001, 0.003, 0.01, 0.03], help="learning rates of the grid")
    parser.add_argument("--outer-lrs", type=numbers, default=[0.2, 0.4, 0.7, 1.0], help="outer rates of the grid")
    parser.add_argument("--steps", type=int, default=800, help="steps of all workers together (default: %(default)s)")
    parser.add_argument("--h", type=int, default=8, help="local steps between exchanges (default: %(default)s)")
    parser.add_argument("--every", type=float, default=5.0, help="virtual seconds between two looks at the model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pages", type=Path, default=PAGES, help="where the page goes (default: docs/papers)")
    options = parser.parse_args(arguments)
    page = Page("lm", "Language models on four unlike workers", options.pages, __doc__)
    page.say(conditions(what_is_trained(options)))
    wanted = options.schemes.split(",") if options.schemes else []
    found = {c.scheme: best(c, options) for c in contenders(options.h) if not wanted or c.scheme in wanted}
    page.say("## Loss after the same tokens")
    page.say(table(HEAD, rows_of(found)))
    page.say(reading(found))
    page.say(edges(found, options))
    figure, axes = axes_of(3)
    for one, (label, of) in zip(axes, AXES.items(), strict=True):
        losses(one, found, label, of)
    page.figure(figure, "Test loss against tokens, virtual seconds and megabytes")
    page.write()
    return 0


def what_is_trained(options: argparse.Namespace) -> str:
    return (
        f"`--model gpt` with {64 * WIDTH:.0f} units, {DEPTH} blocks and a context of {CONTEXT} predicts the bytes of "
        f"{options.text or 'the standard library of Python'} (`--data text`). Four workers whose steps take "
        f"{', '.join(f'{factor * STEP_S:g}' for factor in FACTORS)} s with 5 % jitter; batches of {BATCH}; links of "
        f"{MEGABITS:g} Mbit/s and 20 ms, to a server with as much as all of them (noloco: among the workers). AdamW, "
        f"muon for muloco, weight decay 0.1. H = {options.h}; decoupled has two fragments. Every scheme makes "
        f"{options.steps:,} steps in all, {options.steps * BATCH * CONTEXT / 1e6:.2f} million tokens. The grid: "
        f"learning rates {', '.join(f'{lr:g}' for lr in options.lrs)} at the outer rate {middle(options):g}, then "
        f"outer rates "
        f"{', '.join(f'{lr:g}' for lr in options.outer_lrs)} (beta of noloco, alpha of sparseloco) at the best of "
        f"them; the last loss decides. Seed {options.seed}."
    )


HEAD = ["scheme", "rate", "outer rate", "test loss", "perplexity", "virtual time", "sent by workers"]


def rows_of(found: Mapping[str, Found]) -> list[list[str]]:
    return [
        [
            name,
            f"{one.lr:g}",
            "" if one.outer is None else f"{one.outer:g}",
            f"{one.loss:.3f}",
            shown(math.exp(one.loss)) if one.loss < DIVERGED else "diverged",
            shown(one.trial.summary.seconds, " s"),
            shown(one.trial.summary.bytes_up / 1e6, " MB"),
        ]
        for name, one in found.items()
        if one.trial.summary
    ]


def reading(found: Mapping[str, Found]) -> str:
    base = found.get("bsp")
    if base is None or base.trial.summary is None:
        return ""
    lines = []
    for name, one in found.items():
        if name == "bsp" or one.trial.summary is None:
            continue
        less = base.trial.summary.bytes_up / max(one.trial.summary.bytes_up, 1)
        faster = base.trial.summary.seconds / one.trial.summary.seconds
        reached = seconds_to(one.trial, base.loss)
        when = f"reaches that loss after {reached:.0f} s" if reached is not None else "does not reach that loss"
        lines.append(
            f"- {name}: {one.loss - base.loss:+.3f} nats, {faster:.1f} times as fast, {less:.1f} times less sent; "
            f"it {when}"
        )
    head = f"Against bsp, which ends at {base.loss:.3f} after {base.trial.summary.seconds:.0f} s:"
    return "\n".join([head, "", *lines])


def edges(found: Mapping[str, Found], options: argparse.Namespace) -> str:
    """Says which best rates lie at an edge of the grid, beyond which there may be better ones."""
    at = [
        f"{name} ({rate:g})"
        for name, one in found.items()
        for rate, grid in ((one.lr, options.lrs), (one.outer, options.outer_lrs))
        if rate is not None and len(grid) > 1 and rate in (min(grid), max(grid))
    ]
    return f"Best at an edge of the grid, so perhaps better beyond it: {', '.join(at) or 'none'}."


def seconds_to(trial: Trial, loss: float) -> float | None:
    """The first look at which the model was as good as `loss`; None if there was none."""
    return next((at for at, _, seen in trial.curve if seen <= loss), None)


Of = Callable[[Trial, int], float]
"""Where on the axis a look at the model is."""


def tokens(trial: Trial, look: int) -> float:
    return trial.samples[look] * CONTEXT / 1e6


def seconds(trial: Trial, look: int) -> float:
    return trial.curve[look][0]


def megabytes(trial: Trial, look: int) -> float:
    """What workers had sent: in proportion to the samples, since exchanges are."""
    assert trial.summary is not None
    return trial.summary.bytes_up / 1e6 * trial.samples[look] / max(trial.samples[-1], 1)


AXES: Mapping[str, Of] = {"million tokens": tokens, "virtual seconds": seconds, "MB sent by workers": megabytes}


def losses(axes: Axes, found: Mapping[str, Found], label: str, of: Of) -> None:
    for (name, one), colour in zip(found.items(), LINES, strict=False):
        if one.trial.summary is None:
            continue
        looks = [look for look, (_, _, loss) in enumerate(one.trial.curve) if loss < DIVERGED and of(one.trial, look)]
        axes.plot(
            [of(one.trial, look) for look in looks],
            [one.trial.curve[look][2] for look in looks],
            label=name,
            color=colour,
        )
    if label.startswith("MB"):
        axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("test loss, nats a byte")
    axes.legend(frameon=False, fontsize=7)


if __name__ == "__main__":
    sys.exit(main())
