"""Makes the summary of a run that left none, because it was killed or still goes on, from its trace and its
settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from paceline.core.trace import OVERLAP_VERDICTS, Decided, Evaluated, Leased, LostWork, MemberChange, Record, Span
from paceline.observe.runs.goodput import Goodput
from paceline.observe.runs.summary import Faults, Staleness, Summary, WorkerSummary, overlap_of, seconds_to_target

REASON = "did not end"
SECONDS = {
    "computing": "seconds_computing",
    "waiting": "seconds_waiting",
    "communicating": "seconds_communicating",
}


def rebuilt(records: Iterable[Record], facts: Mapping[str, Any]) -> Summary:
    """Returns the summary that the trace gives; bytes are not in it. `facts`: settings by `section.key`, as of
    config.toml."""
    workers: dict[int, dict[str, Any]] = {}
    evaluations: list[Evaluated] = []
    staleness, faults, goodput = Staleness(), Faults(), Goodput()
    seconds, leased = 0.0, None
    for record in records:
        staleness.add(record)
        faults.add(record)
        goodput.add(record)
        seconds = max(seconds, record.at)
        match record:
            case Span():
                _add(workers.setdefault(record.rank, _nothing(record.rank, facts)), record)
            case LostWork(rank=rank, steps=steps, samples=samples):
                fields = workers.setdefault(rank, _nothing(rank, facts))
                fields["steps"], fields["samples"] = fields["steps"] - steps, fields["samples"] - samples
            case Evaluated():
                evaluations.append(record)
            case Decided(verdict=verdict, rank=rank) if verdict in OVERLAP_VERDICTS:
                workers.setdefault(rank, _nothing(rank, facts))["overlap"] = overlap_of(record)
            case Leased():
                leased = record
            case MemberChange(event="joined") if record.party.startswith("worker "):
                rank = int(record.party.partition(" ")[2])
                workers.setdefault(rank, _nothing(rank, facts)).update(device=record.device or "?", host=record.host)
    for rank, fields in workers.items():
        fields |= {"staleness_mean": staleness.mean(rank), "staleness_max": staleness.max(rank)}
        fields |= {"refused": faults.refused(rank), "wild": faults.wild(rank)}
    evaluations.sort(key=lambda evaluated: evaluated.at)
    found = _summary([WorkerSummary(**workers[rank]) for rank in sorted(workers)], evaluations, seconds, facts)
    return replace(found, leased=leased, goodput=goodput.share(len(workers), seconds), dropped=goodput.dropped)


def _nothing(rank: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a worker that has done nothing yet."""
    slowdowns = list(facts.get("cluster.slowdown", ()))
    whole = {"rank": rank, "device": "?", "slowdown": slowdowns[rank] if rank < len(slowdowns) else 1.0}
    return whole | dict.fromkeys(("steps", "exchanges", "samples", "seconds_hidden", *SECONDS.values()), 0)


def _add(fields: dict[str, Any], span: Span) -> None:
    """Adds a span to the fields of its worker."""
    fields["steps"] += span.steps
    fields["samples"] += span.samples
    fields["seconds_hidden"] += span.hidden
    fields["exchanges"] += span.exchanges
    fields[SECONDS[span.activity]] += span.seconds


def _summary(
    workers: list[WorkerSummary], evaluations: list[Evaluated], seconds: float, facts: Mapping[str, Any]
) -> Summary:
    """Returns the summary of these workers and evaluations."""
    target, target_loss = facts.get("stop.target_accuracy") or None, facts.get("stop.target_loss") or None
    samples = sum(worker.samples for worker in workers)
    scheme = str(facts.get("run.scheme", "unknown"))
    return Summary(
        scheme=scheme,
        driver="live",
        seed=facts.get("run.seed", 0),
        reason=REASON,
        seconds=seconds,
        samples=samples,
        samples_per_second=samples / seconds if seconds else 0.0,
        test_accuracy=evaluations[-1].accuracy if evaluations else None,
        target_accuracy=target,
        seconds_to_target=seconds_to_target(evaluations, target, target_loss),
        target_loss=target_loss,
        bytes_up=0,
        bytes_down=0,
        workers=tuple(workers),
        model=str(facts.get("model.name", "unknown")),
        data=str(facts.get("data.name", "unknown")),
        servers=facts.get("cluster.servers", 0),
        step_ms=facts.get("cluster.step_ms") or None,
        learning_rate=facts.get("optimizer.lr", 0.0),
        parameters={k.partition(".")[2]: v for k, v in facts.items() if k.startswith(f"{scheme}.")},
    )
