"""The law of the page: headline, alert, forecast and waits never contradict one another, whatever the run does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.scheme import make
from paceline.core.trace import Ended, MemberChange, Record, ResourceUse, Span, to_dict
from paceline.core.vector import Ghost
from paceline.observe.watch.page_data import PageQuery
from paceline.observe.watch.reader import Reader
from paceline.observe.watch.waits.straggler import WorkerTiming, straggler
from paceline.observe.watch.waits.verdict import HOLD_S, MEAN, MOST, Evidence, Judgement
from paceline.observe.watch.waits.worker_rates import WorkerRates
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Fault, Host

STEP_S, SECONDS, CHUNK_S = 0.25, 40.0, 1.0
SCHEMES = (
    "bsp",
    "asp",
    "ssp",
    "dssp",
    "gsp",
    "ksync",
    "partial",
    "localsgd",
    "esync",
    "diloco",
    "easgd",
    "adpsgd",
    "prague",
)
SERVERLESS = ("bsp", "localsgd", "esync", "diloco", "adpsgd", "prague")
"""Those that may do without servers."""
MOVES = 0.1
"""By how much shares of ten seconds may change between the page's last look and now."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Describes a simulated run in which a worker may pause or be lost, and which may end well or fail."""

    scheme: str
    factors: list[float]
    jitter: float
    servers: int
    latency_s: float
    pause_s: float
    loses_one: bool
    ended: str

    def trace(self) -> list[Record]:
        """Returns its trace, by time."""
        last = len(self.factors) - 1
        hosts = [
            Host(name=f"h{n}", devices=(Device(factor=f, jitter=self.jitter),)) for n, f in enumerate(self.factors)
        ]
        if self.servers or self.scheme not in SERVERLESS:
            hosts.append(Host(name="s", servers=1, latency_s=self.latency_s))
        pause = (Fault(kind="pause", at_s=15.0, for_s=self.pause_s, workers=(last,)),) if self.pause_s else ()
        cluster = Cluster(hosts=tuple(hosts), step_s=STEP_S, faults=pause)
        records: list[Record] = [
            MemberChange(at=0.0, party=f"worker {rank}", event="joined") for rank in range(last + 1)
        ]
        work = LocalSteps(lambda rank, rng: STEP_S, samples=lambda rank: 32)
        sim = Simulation(make(self.scheme, {}), Ghost(1000), work, cluster=cluster, trace=records.append, watched=False)
        sim.run(until=SECONDS)
        used = [ResourceUse(at=2.0 * n, party="worker 0", memory_bytes=1, cores=1.0) for n in range(int(SECONDS / 2))]
        records = [*records, *used]
        if self.loses_one:
            records = list(without_one(records, last, 25.0))
        records.sort(key=lambda record: record.at)
        return [*records, Ended(at=SECONDS, reason=self.ended)] if self.ended else records


RUNS = st.builds(
    Drawn,
    scheme=st.sampled_from(SCHEMES),
    factors=st.lists(st.sampled_from([1.0, 1.3, 2.0, 4.0]), min_size=2, max_size=6),
    jitter=st.sampled_from([0.0, 0.1, 0.5]),
    servers=st.sampled_from([0, 1]),
    latency_s=st.sampled_from([0.0, 0.2 * STEP_S, STEP_S]),
    pause_s=st.sampled_from([0.0, 2.0, 9.0]),
    loses_one=st.booleans(),
    ended=st.sampled_from(["", "steps", "failed: worker 1 was lost: killed by signal 9"]),
)


def without_one(records: list[Record], rank: int, at: float) -> Iterator[Record]:
    """Yields the records of a run that loses a worker, of which nothing is heard any more."""
    yield MemberChange(at=at, party=f"worker {rank}", event="lost", reason="it is silent")
    for record in records:
        if not (isinstance(record, Span) and record.rank == rank and record.at > at):
            yield record


def looks(records: list[Record]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yields what the page shows while it reads the trace bit by bit, and whether somebody has just come or gone."""
    with TemporaryDirectory() as folder:
        path, now = Path(folder) / "trace.jsonl", 0.0
        path.touch()
        reader, come_or_gone = Reader(Path(folder), from_start=True), False
        with path.open("a") as file:
            for record in records:
                if record.at >= now + CHUNK_S:
                    file.flush()
                    reader.read()
                    yield reader.picture(PageQuery()), come_or_gone
                    now, come_or_gone = record.at, False
                come_or_gone |= isinstance(record, MemberChange)
                file.write(json.dumps(to_dict(record)) + "\n")
        reader.read()
        yield reader.picture(PageQuery()), come_or_gone


def check(told: dict[str, Any]) -> None:
    """What holds of the page at any moment."""
    headline, alerts = told["headline"], {alert["kind"]: alert for alert in told["alerts"]}
    if told["ended"].startswith("failed"):
        assert (headline["tone"], headline["title"]) == ("failed", "The run has failed")
        assert headline["sentence"] == told["ended"].removeprefix("failed: ")
        return
    if told["ended"]:
        assert (headline["tone"], headline["title"]) == ("over", "The run is over")
        return
    if headline["kind"] == "begun":
        assert not alerts.keys() & {"worker", "server"}
        assert headline["sentence"].startswith(
            ("No worker has finished", "Training has begun", "All workers have left")
        )
        return
    waits = [row["shares"][2] for row in told["rows"] if row["here"]]
    if sum(waits) / len(waits) > MEAN + MOVES or max(waits) > MOST + MOVES:
        assert headline["kind"] != "nobody", f"they wait {waits}"
    named = headline["sentence"].startswith("Nobody")
    assert named == (headline["kind"] == "nobody")
    for kind in alerts.keys() & {"worker", "server"}:
        assert headline["tone"] == "held", "the alert is the headline"
        assert alerts[kind]["text"] == headline["sentence"]
    assert [row["rank"] for row in told["rows"] if row["straggler"]] == [
        row["rank"] for row in told["rows"] if row["rank"] in headline["ranks"]
    ]


@given(RUNS)
@settings(max_examples=40)
def test_nothing_on_the_page_contradicts_its_headline_and_it_does_not_flip(run: Drawn) -> None:
    since, before = -HOLD_S, ("begun", [])
    for told, come_or_gone in looks(run.trace()):
        check(told)
        headline = told["headline"]
        now = headline["kind"], headline["ranks"]
        if now != before:
            held = before[0] in ("workers", "uneven", "turns", "exchange") and headline["kind"] not in (
                "stall",
                "begun",
            )
            if held and not come_or_gone and not told["ended"]:
                assert told["now"] >= since + HOLD_S - CHUNK_S, f"{before} became {now}"
            since, before = told["now"], now


def test_half_of_the_workers_at_most_are_named_for_what_the_others_wait() -> None:
    timings = [
        WorkerTiming(rank=rank, own_s=1 + rank / 5, waiting_s=4 - (1 + rank / 5), samples=32) for rank in range(16)
    ]
    found = straggler(timings)
    assert found is not None
    assert set(found.ranks) == set(range(16 - len(found.ranks), 16))
    assert len(found.ranks) <= 8
    assert found.gain > 1.3


def evidence(waited: float, *, also: int = 3) -> Evidence:
    """Of four workers that wait that part of each second for the last of them, or for those from `also` on."""
    own = [1.0 if rank >= also else 1 - waited for rank in range(4)]
    timings = [WorkerTiming(rank=rank, own_s=own[rank], waiting_s=1 - own[rank], samples=32) for rank in range(4)]
    found = Evidence.of([WorkerRates(rank) for rank in range(4)], timings)
    assert found is not None
    return found


def test_a_verdict_begins_at_once_and_ends_when_it_has_been_away_for_long() -> None:
    judgement, seen = Judgement(), []
    for now in range(40):
        judgement.look(float(now), evidence(0.6 if 10 <= now < 20 or now == 23 else 0.0), enough=now >= 2)
        seen.append(judgement.verdict.kind)
    assert seen == ["begun"] * 2 + ["nobody"] * 8 + ["workers"] * 19 + ["nobody"] * 11
    assert judgement.verdict.since == 29.0


def test_a_verdict_that_hovers_about_its_bound_stays() -> None:
    judgement, seen = Judgement(), set()
    for now in range(60):
        judgement.look(float(now), evidence(0.21 if now % 2 else 0.18), enough=True)
        seen.add((judgement.verdict.kind, judgement.verdict.grave))
    assert seen == {("workers", False)}


def test_who_is_not_needed_to_explain_the_waits_is_named_no_longer() -> None:
    judgement = Judgement()
    judgement.look(0.0, evidence(0.6, also=2), enough=True)
    assert sorted(judgement.verdict.ranks) == [2, 3]
    for now in range(1, 8):
        judgement.look(float(now), evidence(0.6), enough=True)
    assert judgement.verdict.ranks == (3,)


@pytest.mark.parametrize("afresh", [False, True])
def test_who_has_come_or_gone_ends_a_verdict_at_once(afresh: bool) -> None:
    judgement = Judgement()
    judgement.look(1.0, evidence(0.6), enough=True)
    judgement.look(2.0, evidence(0.0), enough=True, afresh=afresh)
    assert judgement.verdict.kind == ("nobody" if afresh else "workers")
    judgement.look(3.0, None, enough=False)
    assert judgement.verdict.kind == "begun"
