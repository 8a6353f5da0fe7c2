"""Gives the state as JSON: as much of it as the page shows at a time, and words for what numbers alone do not say.

The page asks again and again, says what it has (`PageQuery`), and gets the long sections only when they have changed.
Every number is finite or null.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.trace import OPERATOR, Decided, Gated, MemberChange
from paceline.observe.runs.summary import FAILED
from paceline.observe.watch.headline import headline, sentence
from paceline.observe.watch.panels.alerts import fallen_throughput, stuck
from paceline.observe.watch.state import PageState
from paceline.observe.watch.time_bins import TimeBins
from paceline.observe.watch.waits.verdict import WaitVerdict
from paceline.observe.watch.waits.worker_rates import ACTIVITIES, WorkerRates

ROWS_MAX = 100
"""Workers that the page lists at a time."""
BANDS = 10
"""Bands of equally many workers."""
BANDED_FROM = 40
"""From so many workers on, ten bands of them are shown above the single ones."""
RANKS_SHOWN = 40
"""Ranks of a group or an activity that are listed."""
HOSTS_SHOWN = 4
"""Hosts that a row names; of more it says how many there are."""
EVENTS_OF_WORKER = 50
"""Events that the page about one worker lists."""
GROUPS_MAX = 50
"""Groups of workers that the page lists."""
STEPS_SMOOTHED = 5
"""Steps of the slowest worker over which throughput is averaged."""
USUAL_S, USUAL_STEPS = 5.0, 15
"""The usual rate is the median of so many seconds, or steps of the slowest worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """Says what the page asks for: workers `first` to `first + count` in the order of `sort`, and what it has already.

    curve, events: numbers of records of those sections that the page has. worker: the rank that is shown on its own.
    """

    sort: str = "slow"
    first: int = 0
    count: int = ROWS_MAX
    curve: int = -1
    events: int = -1
    worker: int = -1


def picture(state: PageState, query: PageQuery) -> dict[str, Any]:
    """Returns the document for a query. Curve and events are left out if the page has them, by their numbers of
    records."""
    order = ordered(state.workers, state, query.sort)
    verdict = state.verdict
    shown = order[query.first : query.first + min(query.count, ROWS_MAX)]
    document: dict[str, Any] = {
        "now": round(state.now, 3),
        "ended": state.ended,
        "samples": state.samples,
        "rate": round(sum(worker.samples_per_second for worker in state.workers if worker.here), 1),
        "goodput": None if state.goodput is None else round(state.goodput, 3),
        "workers": len(state.workers),
        "here": sum(worker.here for worker in state.workers),
        "strip": [round(state.strips.first * state.strips.width_s, 3), round(_end(state.strips), 3)],
        "headline": headline(state),
        "collapse": state.collapse(),
        "first": query.first,
        "rows": [row(state, worker, verdict) for worker in shown],
        "groups": [group(state, ranks) for ranks in state.groups()[:GROUPS_MAX]],
        "standing": standing(state),
        "servers": servers(state),
        "links": state.resources.rows(state.now),
        "link_count": len(state.resources.links),
        "bands": bands(state) if len(state.workers) >= BANDED_FROM else [],
        "curve_count": state.evaluations.count,
        "event_count": state.event_count,
    }
    if query.curve != document["curve_count"]:
        evaluated = state.evaluations.points
        only_losses = any(e.loss for e in evaluated) and not any(e.accuracy or e.chance for e in evaluated)
        points = [(e.at, math.nan if only_losses else e.accuracy, e.loss, e.samples) for e in evaluated]
        document["curve"] = [[_known(value) for value in point] for point in points]
    document["rates"] = rates(state)
    document["worker"] = own_page(state, query.worker, verdict) if 0 <= query.worker < len(state.workers) else None
    if query.events != state.event_count:
        document["events"] = [event(record) for record in reversed(state.events)]
    return document


def _known(value: float) -> float | None:
    """Returns a number, rounded, or None if it is not finite, as the loss of a model that has diverged: JSON has no
    NaN."""
    return round(value, 4) if math.isfinite(value) else None


def rates(state: PageState) -> tuple[float, float, list[int]]:
    """Returns throughput over time: where the first bin begins, its width in seconds, and samples per second of each
    bin.

    Each is the mean of a few steps around it. Samples are known when their step is over, so the bins of the latest
    steps are left out.
    """
    slowest = max((worker.step_s for worker in state.workers if worker.here), default=0.0)
    # Where nobody has finished a step for twice as long as the slowest one takes, nothing was trained.
    state.rates.cover(state.now - 2 * slowest)
    width = state.rates.width_s
    known = max(0, int((state.now - slowest) / width) - state.rates.first)
    counts = [sums[0] for sums in itertools.islice(state.rates.of(0), known)]
    reach = round(STEPS_SMOOTHED * slowest / width / 2)
    sums = [0.0, *itertools.accumulate(counts)]
    ends = ((max(0, at - reach), min(len(counts), at + reach + 1)) for at in range(len(counts)))
    return state.rates.first * width, width, [round((sums[hi] - sums[lo]) / (hi - lo) / width) for lo, hi in ends]


def usual_rate(state: PageState) -> float:
    """Returns the median of the latest samples per second, so that a short outage changes nothing; 0 before there are
    any."""
    _, width, latest = rates(state)
    slowest = max((worker.step_s for worker in state.workers if worker.here), default=0.0)
    known = latest[-max(1, round(max(USUAL_S, USUAL_STEPS * slowest) / width)) :]
    return statistics.median(known) if known else 0.0


def causes(state: PageState) -> dict[str, str]:
    """Returns what an operator should look at, by kind of alert (`panels/alerts.py`)."""
    verdict = state.verdict
    found = {verdict.alert: sentence(state)} if verdict.alert else {}
    _, width, latest = rates(state)
    told = {"throughput": fallen_throughput(latest, width), "loss": state.collapse()}
    told["stuck"] = "" if told["loss"] else stuck(state.evaluations.points)
    return found | {kind: text for kind, text in told.items() if text}


def last_causes(state: PageState) -> dict[str, str]:
    """Returns what an operator should know of a run that is over, by kind of alert."""
    found = {"loss": state.collapse(), "failed": state.ended if state.ended.startswith(FAILED) else ""}
    return {kind: text for kind, text in found.items() if text}


def ordered(workers: Sequence[WorkerRates], state: PageState, sort: str) -> list[WorkerRates]:
    """Returns the workers in the order of `sort`, a column of the page; the slowest first for any other name."""
    keys = {
        "slow": lambda worker: -worker.own_s,
        "rank": lambda worker: worker.rank,
        "waiting": lambda worker: -worker.shares()[2],
        "staleness": lambda worker: -state.lateness[worker.rank].mean if worker.rank in state.lateness else 0.0,
        "share": lambda worker: -worker.samples,
        "rate": lambda worker: -round(worker.samples_per_second, 1),
    }
    return sorted(workers, key=keys.get(sort, keys["slow"]))


def row(state: PageState, worker: WorkerRates, verdict: WaitVerdict) -> dict[str, Any]:
    """Returns one worker's row."""
    late, wait = state.lateness.get(worker.rank), state.waits.wait(worker.rank)
    rounds = worker.steps_a_round
    return {
        "rank": worker.rank,
        "device": worker.device,
        "host": worker.host,
        "here": worker.here,
        "at": state.standing(worker.rank),
        "why": wait.reason if wait else "",
        "step_ms": round(1000 * worker.step_s, 2),
        "own_ms": round(1000 * worker.own_s, 2),
        "shares": [round(share, 3) for share in worker.shares()],
        "rate": round(worker.samples_per_second, 1),
        "steps": worker.steps,
        "part": round(worker.samples / max(1, state.samples), 4),
        "rounds": None if rounds is None else round(rounds, 1),
        "staleness": None if late is None else [round(late.mean, 1), late.largest],
        "straggler": worker.rank in verdict.ranks,
        "strip": strip(state.strips, [worker.rank]),
        "use": state.resources.of(f"worker {worker.rank}") if worker.here else None,
    }


def own_page(state: PageState, rank: int, verdict: WaitVerdict) -> dict[str, Any]:
    """Returns what a page about one worker shows: its row, how it compares with the others, and what befell it."""
    worker, name = state.workers[rank], f"worker {rank}"
    own = [w.own_s for w in state.workers if w.here and w.own_s > 0]
    events = [record for record in state.events if _who(record) == name]
    return {
        "row": row(state, worker, verdict),
        "samples": worker.samples,
        "exchanges_ms": round(1000 * worker.usual_exchange_s, 2),
        "median_ms": round(1000 * statistics.median(own), 2) if own else None,
        "times": round(worker.own_s / statistics.median(own), 2) if own and worker.own_s > 0 else None,
        "links": state.resources.rows(state.now, name),
        "events": [event(record) for record in reversed(events)][:EVENTS_OF_WORKER],
    }


def _who(record: Decided | MemberChange | Gated) -> str:
    """Returns the party that an event is about."""
    if isinstance(record, Decided) and record.party in (OPERATOR, "evaluator"):
        about_a_worker = record.verdict.removeprefix("refused: ") in ("expel", "drain")
        return f"worker {record.rank}" if about_a_worker else record.party
    return record.party if isinstance(record, MemberChange) else f"worker {record.rank}"


def strip(bins: TimeBins, rows: Sequence[int]) -> str:
    """Returns two characters a bin: tenths of computing and of communicating, from 0 to : (ten); the rest is waiting.

    A bin of which nothing is known is `..`.
    """
    rows = [number for number in rows if number < bins.rows]
    columns = zip(*(bins.of(number) for number in rows), strict=True)
    return "".join(_tenths([sum(sums) for sums in zip(*column, strict=True)]) for column in columns)


def _tenths(sums: Sequence[float]) -> str:
    """Returns the two characters of one bin."""
    total = sum(sums)
    if total <= 0:
        return ".."
    computing = round(10 * sums[0] / total)
    communicating = min(round(10 * sums[1] / total), 10 - computing)
    return chr(48 + computing) + chr(48 + communicating)


def bands(state: PageState) -> list[dict[str, Any]]:
    """Returns the workers in ten bands, the slowest first."""
    workers = [worker for worker in ordered(state.workers, state, "slow") if worker.here]
    cuts = [round(n * len(workers) / BANDS) for n in range(BANDS + 1)]
    return [_band(state, workers[low:high]) for low, high in itertools.pairwise(cuts) if low < high]


def _band(state: PageState, workers: Sequence[WorkerRates]) -> dict[str, Any]:
    """Returns one band of workers."""
    return {
        "workers": len(workers),
        "step_ms": [round(1000 * worker.step_s, 2) for worker in (workers[0], workers[-1])],
        "shares": mean_shares(workers),
        "rate": round(sum(worker.samples_per_second for worker in workers), 1),
        "strip": strip(state.strips, [worker.rank for worker in workers]),
    }


def mean_shares(workers: Sequence[WorkerRates]) -> list[float]:
    """Returns the shares of these workers' time: computing, communicating, waiting."""
    return [round(statistics.fmean(column), 3) for column in zip(*(worker.shares() for worker in workers), strict=True)]


def standing(state: PageState) -> dict[str, Any]:
    """Returns, by activity, how many workers are at it, and the first of them."""
    ranks: dict[str, list[int]] = {activity: [] for activity in ACTIVITIES}
    for worker in state.workers:
        if worker.here and worker.last_activity:
            ranks[state.standing(worker.rank)].append(worker.rank)
    return {activity: {"count": len(of), "ranks": of[:RANKS_SHOWN]} for activity, of in ranks.items()}


def group(state: PageState, ranks: Sequence[int]) -> dict[str, Any]:
    """Returns who meets in one group and where, and its own speed: the step of its slowest, samples a second of all."""
    workers = [state.workers[rank] for rank in ranks]
    hosts = dict.fromkeys(worker.host for worker in workers if worker.host)
    return {
        "ranks": list(ranks[:RANKS_SHOWN]),
        "workers": len(ranks),
        "hosts": list(hosts)[:HOSTS_SHOWN],
        "step_ms": round(1000 * max(worker.own_s for worker in workers), 2),
        "shares": mean_shares(workers),
        "rate": round(sum(worker.samples_per_second for worker in workers), 1),
        "strip": strip(state.strips, ranks),
    }


def servers(state: PageState) -> list[dict[str, Any]]:
    """Returns the servers, by shard.

    rate     updates a second over what the strips span; load: of each bin, in tenths of the highest
    late_ms  how much later than the first server it makes an update
    state    "lost", "slow" or ""
    """
    rows, slow = [], state.slow_servers()
    for number, shard in sorted(state.shards.items()):
        counts = [sums[0] for sums in state.updates.of(number)] if number < state.updates.rows else []
        most, span = max(counts, default=0.0) or 1.0, len(counts) * state.updates.width_s or 1.0
        rows.append(
            {
                "shard": number,
                "host": shard.host,
                "state": "lost" if shard.lost_at is not None else "slow" if number in slow else "",
                "late_ms": round(1000 * state.lags.late_s.get(number, 0.0), 2),
                "version": shard.version,
                "rate": round(sum(counts) / span, 1),
                "contributions": shard.contributions,
                "dropped": shard.dropped,
                "use": state.resources.of(f"server {number}") if shard.lost_at is None else None,
                "staleness": round(shard.staleness / max(1, shard.contributions), 2),
                "load": "".join(chr(48 + round(10 * count / most)) for count in counts),
            }
        )
    return rows


def event(record: Decided | MemberChange | Gated) -> dict[str, Any]:
    """Returns a row of the list of events."""
    match record:
        case Decided(party=party) if party in (OPERATOR, "evaluator"):
            who, what = party, record.verdict
        case Decided():
            who = f"worker {record.rank}"
            what = record.verdict if record.party == who else f"{record.verdict} ({record.party})"
        case MemberChange():
            who, what = record.party, record.event
        case Gated():
            who, what = f"worker {record.rank}", "contribution refused"
    return {"at": round(record.at, 2), "who": who, "what": what, "why": record.reason}


def _end(bins: TimeBins) -> float:
    """Returns the end of the last bin, in seconds of the run."""
    return (bins.last + 1) * bins.width_s
