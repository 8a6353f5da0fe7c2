"""Puts into a table and into words what a scheme would be worth on a cluster, and what nobody can know beforehand.

Time to a target is samples needed over samples a second. The second is known once a cluster has been simulated; the
first is a property of model, data and learning rate, and is known only when the model was trained. So the advice
keeps the two apart: a faster scheme is worth having while it needs no more samples than its lead allows.

    updates   how they come about (`Prospect.kind`, the first that holds)
    lossy     more than a thousandth of the samples was dropped
    gossip    every worker has a model of its own
    local     the optimizer is the worker's
    late      some update was stale, or workers made different numbers of exchanges
    exact     otherwise
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.observe.formatting.columns import columns
from paceline.observe.formatting.number_format import accuracy_text, count_text, megabytes, percent, seconds_text
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.race import ranking

EXACT, LATE, LOCAL, GOSSIP, LOSSY = "exact", "late", "local", "gossip", "lossy"
WHAT = {
    EXACT: "one update a round from everybody's gradient at the same weights, as one process would make it",
    LATE: "gradients are applied to newer weights than they were computed on",
    LOCAL: "workers make steps of their own between exchanges",
    GOSSIP: "every worker has a model of its own; they are mixed",
    LOSSY: "some of the work is thrown away",
}
WORTH = 1.1
"""A lead below this factor is not worth another scheme."""
NARROW = 0.2
"""From this share of the time on, communication holds a scheme back."""
COLUMNS = 100
"""Columns of the advice, where it does not go to a terminal."""
HEAD = (
    "scheme",
    "updates",
    "smp/s",
    "times",
    "idle",
    "comm",
    "good",
    "stale",
    "steps",
    "lost",
    "MB/s",
    "MB wkr",
    "MB srv",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """Holds what the simulation of one scheme on the cluster gave.

    worker_bytes  memory for vectors on the worker that needs most, at most; server_bytes: on the server
    local         the optimizer is the worker's
    own_models    workers' models differ
    spacing       steps of a worker between two exchanges, on average; None where the run saw no two
    unseen        what of a scheme that changes as it goes the simulated time has not come to
    """

    summary: Summary
    worker_bytes: int
    server_bytes: int
    local: bool
    own_models: bool
    spacing: float | None = None
    unseen: str = ""

    @property
    def name(self) -> str:
        """Returns the name of the scheme."""
        return self.summary.scheme

    @property
    def samples_per_second(self) -> float:
        """Returns the samples per second that reach the model."""
        s = self.summary
        return (s.samples - s.dropped) / s.seconds if s.seconds else 0.0

    @property
    def spacing_text(self) -> str:
        """Returns the steps between two exchanges as a table has them."""
        return "-" if self.spacing is None else f"{self.spacing:.1f}"

    @property
    def kind(self) -> str:
        """Returns how its updates come about, as far as was seen: a key of WHAT."""
        if self.summary.dropped > 0.001 * self.summary.samples:
            return LOSSY
        if self.own_models:
            return GOSSIP
        if self.local:
            return LOCAL
        exchanges = [w.exchanges for w in self.summary.workers]
        return LATE if self.summary.staleness_mean or max(exchanges) - min(exchanges) > 1 else EXACT

    @property
    def slowest_share(self) -> float:
        """Returns the samples of the worker that did fewest, as a fraction of an equal part of all."""
        workers = self.summary.workers
        return min(w.samples for w in workers) * len(workers) / max(1, self.summary.samples)


def ranked(prospects: Sequence[Prospect]) -> list[Prospect]:
    """Returns the prospects by time to the target where the model was trained, else by samples per second."""
    if any(p.summary.target_accuracy is not None for p in prospects):
        place = {id(s): n for n, s in enumerate(ranking([p.summary for p in prospects]))}
        return sorted(prospects, key=lambda p: place[id(p.summary)])
    return sorted(prospects, key=lambda p: -p.samples_per_second)


def reference(prospects: Sequence[Prospect]) -> Prospect | None:
    """Returns what the others are compared with: the fastest whose updates are those of one process; None
    without any."""
    exact = [p for p in prospects if p.kind == EXACT]
    return max(exact, key=lambda p: p.samples_per_second, default=None)


def advice_text(prospects: Sequence[Prospect], refused: Sequence[tuple[str, str]], width: int = COLUMNS) -> str:
    """Returns the table, the verdict, and what it does not know. `refused`: schemes that do not fit, and why."""
    lines = [_table(ranked(prospects), " " if width < COLUMNS else "  "), "", textwrap.fill(WHAT_COLUMNS, width), ""]
    kinds = [kind for kind in WHAT if any(p.kind == kind for p in prospects)]
    lines += [textwrap.fill(f"{kind:<7} {WHAT[kind]}", width, subsequent_indent=" " * 8) for kind in kinds]
    lines += [textwrap.fill(f"{p.name} was seen in part: not {p.unseen}.", width) for p in prospects if p.unseen]
    lines += ["", *(textwrap.fill(line, width) for line in verdict(prospects))]
    if refused:
        lines += ["", "Left out:", *(f"  {name}: {why}" for name, why in refused)]
    unknown = [textwrap.fill(f"- {line}", width, subsequent_indent="  ") for line in _unknown(prospects)]
    return "\n".join([*lines, "", "What this cannot know:", *unknown])


WHAT_COLUMNS = """smp/s: samples that reach the model, a second; times: against the fastest exact scheme; idle, comm:
shares of the workers' time; good: goodput, the
share of their capacity that is in the model; stale: mean staleness; steps: of a worker between two exchanges; lost:
share of samples thrown away; MB wkr, MB srv: memory for vectors on a worker and on a server, at
most."""


def _table(prospects: Sequence[Prospect], gap: str) -> str:
    """Returns the table; with columns of accuracy where models were trained."""
    base = reference(prospects)
    trained = any(p.summary.target_accuracy is not None for p in prospects)
    head = (HEAD[0], "to target", "accuracy", *HEAD[1:]) if trained else HEAD
    return columns(head, [_row(p, base, trained) for p in prospects], last=">", gap=gap)


def _row(p: Prospect, base: Prospect | None, trained: bool) -> tuple[str, ...]:
    """Returns the cells of one scheme."""
    s = p.summary
    reached = "missed" if s.seconds_to_target is None else seconds_text(s.seconds_to_target)
    cells = (
        p.kind,
        count_text(p.samples_per_second),
        f"{p.samples_per_second / base.samples_per_second:.2f}" if base else "-",
        percent(s.shares.waiting),
        percent(s.shares.communicating),
        "-" if s.goodput is None else percent(s.goodput),
        "-" if s.staleness_mean is None else f"{s.staleness_mean:.1f}",
        p.spacing_text,
        percent(s.dropped / max(1, s.samples)),
        megabytes(round((s.bytes_up + s.bytes_down) / max(s.seconds, 1e-9))),
        megabytes(p.worker_bytes),
        megabytes(p.server_bytes),
    )
    return (p.name, reached, accuracy_text(s.test_accuracy), *cells) if trained else (p.name, *cells)


def verdict(prospects: Sequence[Prospect]) -> list[str]:
    """Returns the verdict in sentences, each of which says what it rests on."""
    if any(p.summary.target_accuracy is not None for p in prospects):
        return _verdict_of_training(ranked(prospects))
    base, order = reference(prospects), ranked(prospects)
    if base is None:
        best = order[0]
        return [
            f"{best.name} gets through most samples, {count_text(best.samples_per_second)} a second; no scheme "
            "with exact updates was asked for, so there is nothing safe to compare it with."
        ]
    lines = [_safe(base)]
    faster = [p for p in order if p.samples_per_second > WORTH * base.samples_per_second]
    if not faster:
        return [*lines, f"No other scheme is faster by more than {percent(WORTH - 1)}, so there is nothing to gain."]
    return [*lines, *(_worth(p, base) for p in _best_of_each_kind(faster)), *_thrift(prospects, base)]


def _safe(base: Prospect) -> str:
    """Returns the sentence about the reference."""
    shares = base.summary.shares
    why = ""
    if shares.waiting >= WORTH - 1:
        why = f"; its workers wait {percent(shares.waiting)} of their time for one another"
    return f"Without risk: {base.name}, {count_text(base.samples_per_second)} samples/s{why}."


def _best_of_each_kind(order: Sequence[Prospect]) -> list[Prospect]:
    """Returns the first of each kind."""
    best: dict[str, Prospect] = {}
    for p in order:
        best.setdefault(p.kind, p)
    return list(best.values())


def _worth(p: Prospect, base: Prospect) -> str:
    """Returns a sentence about a lead, what it may cost, and the risk that comes with it."""
    times = p.samples_per_second / base.samples_per_second
    risk = {
        LATE: _late(p.summary),
        LOCAL: f"its workers make {p.spacing_text} steps between exchanges",
        GOSSIP: "its workers' models differ",
        LOSSY: f"{percent(p.summary.dropped / max(1, p.summary.samples))} of its samples are thrown away",
        EXACT: "its updates are exact too",
    }[p.kind]
    data = ""
    if p.slowest_share < 0.5:
        data = f"; the slowest worker's data counts {percent(p.slowest_share)} of an equal part"
    return (
        f"Faster ({p.kind}): {p.name}, {times:.2f} times the samples of {base.name} a second. It is sooner at the "
        f"target unless it needs more than {times:.2f} times as many samples; {risk}{data}."
    )


def stable_rate(staleness: float) -> float:
    """Returns the largest learning rate at which SGD is stable, as a fraction of that with fresh gradients.

    On a quadratic of curvature L, gradients that are t updates late are stable up to a rate of 2 sin(pi / (2 (2 t +
    1))) / L, and fresh ones up to 2 / L (Levin and May 1976).
    """
    return math.sin(math.pi / (2 * (2 * staleness + 1)))


def _late(s: Summary) -> str:
    """Returns how late updates are, and what that asks of the learning rate, unless late ones count less."""
    staleness = s.staleness_mean or 0.0
    late = f"its updates are {staleness:.1f} versions late on average"
    if s.parameters.get("weighting", "none") != "none" or staleness < 1:
        return late
    return f"{late}, at which --lr is stable only up to {percent(stable_rate(staleness))} of what it is with fresh ones"


def _thrift(prospects: Sequence[Prospect], base: Prospect) -> list[str]:
    """Returns a sentence about the scheme that sends least, where communication holds the reference back."""
    if base.summary.shares.communicating < NARROW:
        return []

    def sent(p: Prospect) -> float:
        """Returns the bytes that a scheme sends for each sample, up and down."""
        return (p.summary.bytes_up + p.summary.bytes_down) / max(1, p.summary.samples)

    least = min(prospects, key=sent)
    if least is base or not sent(least):
        return []
    return [
        f"Communication holds {base.name} back ({percent(base.summary.shares.communicating)} of the time); "
        f"{least.name} sends {sent(base) / sent(least):.1f} times fewer bytes a sample."
    ]


def _verdict_of_training(order: Sequence[Prospect]) -> list[str]:
    """Returns the verdict where the model was trained in virtual time."""
    from paceline.observe.terminal.race import why

    first = order[0].summary
    return [
        why([p.summary for p in order]),
        f"Trained in virtual time with {first.task} at one learning rate "
        f"({first.learning_rate:g}) and one seed ({first.seed}): a difference of a few percent means nothing.",
    ]


def _unknown(prospects: Sequence[Prospect]) -> list[str]:
    """Returns what the advice does not know."""
    elsewhere = "what the cluster file or run does not say: other tenants, caches, loading of data, faults to come"
    if any(p.summary.target_accuracy is not None for p in prospects):
        return ["whether another model, other data or another learning rate would give the same order", elsewhere]
    seconds = max((p.summary.seconds for p in prospects), default=0.0)
    return [
        "how many samples your model needs under each scheme, and at which rate (--target-accuracy trains one)",
        f"what comes after the {seconds_text(seconds)} that were simulated, for schemes that change as they go",
        elsewhere,
    ]
