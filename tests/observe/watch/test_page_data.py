"""What the page is told, in numbers and in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.core.trace import OPERATOR, Applied, Decided, Evaluated, LinkTraffic, MemberChange, ResourceUse, Span
from paceline.observe.trace.trace_tail import Follower
from paceline.observe.watch.page_data import PageQuery, causes, picture, strip
from paceline.observe.watch.serving.app import PAGE
from paceline.observe.watch.state import PageState

AROUND = {"run", "read", "problem", "forecast", "withheld", "foretold_at", "progress", "alerts", "hook"}
"""What `Reader.picture` adds."""


def barrier(steps_s: list[float], rounds: int = 50) -> PageState:
    """Workers that all wait for the slowest, every round; each says what it is."""
    state, longest = PageState(len(steps_s)), max(steps_s)
    for rank in range(len(steps_s)):
        state.add(MemberChange(at=0.0, party=f"worker {rank}", event="joined", device="cpu", host=f"h{rank}"))
    for n in range(1, rounds + 1):
        for rank, step_s in enumerate(steps_s):
            at = n * longest
            begin = at - longest + step_s
            state.add(Span(at=begin, rank=rank, activity="computing", seconds=step_s, steps=1, samples=10))
            state.add(Span(at=at, rank=rank, activity="waiting", seconds=longest - step_s))
    return state


def test_the_straggler_is_named_with_its_place_and_its_cost() -> None:
    told = picture(barrier([0.1, 0.1, 0.1, 0.4]), PageQuery())["headline"]
    assert told["ranks"] == [3]
    assert told["sentence"] == (
        "Worker 3 (cpu on h3) holds the others up: they waited 75% of the last 10 s for it. A step takes it 400 ms, "
        "the others at most 100 ms. Without it they would make 4 times the steps."
    )


def test_at_every_moment_a_row_says_for_whom_its_worker_waits(tmp_path: Path) -> None:
    """A run of bsp, read from its trace and stopped after every record."""
    words = "simulate --scheme bsp --workers 2 --slowdown 1,5 --step-ms 20 --timing-only --seconds 2 --epochs 0"
    assert main([*words.split(), "--out", str(tmp_path / "run")]) == 0
    state, said = PageState(0), []
    for record in Follower(tmp_path / "run" / "trace.jsonl").read():
        state.add(record)
        of_the_fast = [(r["at"], r["why"]) for r in picture(state, PageQuery(sort="rank", count=1))["rows"]]
        if isinstance(record, Decided) and record.verdict == "wait":
            assert (record.rank, of_the_fast) == (0, [("waiting", "waits for worker 1")])
            said.append(record.at)
        elif isinstance(record, Span) and (record.rank, record.activity) == (0, "computing"):
            assert of_the_fast[0][1] == ""  # it has gone on
    assert len(said) in (state.workers[1].steps, state.workers[1].steps + 1)  # the last may still be going on


def test_goodput_is_the_share_of_the_capacity_so_far_that_is_in_the_model() -> None:
    state = PageState(2)
    assert picture(state, PageQuery())["goodput"] is None
    for at in (1.0, 2.0, 3.0, 4.0):
        state.add(Span(at=at, rank=0, activity="computing", seconds=1.0, steps=1, samples=8, exchanges=1))
        state.add(Applied(at=at, shard=0, ranks=(0,), version=int(at), staleness=0, weight=float(at < 3), samples=8))
    assert picture(state, PageQuery())["goodput"] == 0.25  # two of four seconds of one of two workers
    state.add(MemberChange(at=0.0, party="server 0", event="replaced"))
    state.add(Applied(at=4.0, shard=0, ranks=(0,), version=2, staleness=0, weight=1.0, samples=8))
    assert picture(state, PageQuery())["goodput"] == 0.25, "version 2 was undone and made again"


def test_several_are_named_by_number() -> None:
    sentence = picture(barrier([0.1] * 8 + [0.4] * 4), PageQuery())["headline"]["sentence"]
    assert sentence.startswith(
        "Workers 8, 9, 10 and 1 other hold the others up: they waited 75% of the last 10 s for them. A step takes them "
        "400 ms, the others at most 100 ms."
    )


@pytest.mark.parametrize(
    ("sort", "first"), [("slow", 2), ("rank", 0), ("waiting", 0), ("share", 0), ("rate", 0), ("staleness", 0)]
)
def test_rows_come_in_the_order_that_was_asked_for(sort: str, first: int) -> None:
    state = barrier([0.1, 0.2, 0.4])
    assert picture(state, PageQuery(sort=sort))["rows"][0]["rank"] == first


def test_of_a_thousand_workers_the_rows_in_sight_are_sent_and_bands_of_all() -> None:
    document = picture(
        barrier([0.1 + n / 1e4 for n in range(1000)], rounds=3), PageQuery(sort="rank", first=500, count=5)
    )
    assert [row["rank"] for row in document["rows"]] == [500, 501, 502, 503, 504]
    assert [band["workers"] for band in document["bands"]] == [100] * 10
    assert document["bands"][0]["step_ms"][0] > document["bands"][-1]["step_ms"][1]
    assert len(document["standing"]["computing"]["ranks"]) <= 40


def test_a_strip_has_tenths_of_what_each_bin_was_spent_on() -> None:
    state = PageState(1)
    width = state.strips.width_s
    state.add(Span(at=0.3 * width, rank=0, activity="computing", seconds=0.3 * width))
    state.add(Span(at=0.9 * width, rank=0, activity="communicating", seconds=0.6 * width))
    state.add(Span(at=2.5 * width, rank=0, activity="waiting", seconds=0.4 * width))
    assert strip(state.strips, [0]) == "37..00"


def test_the_scripts_of_the_page_read_nothing_that_it_is_not_told() -> None:
    """A key that is renamed on one side alone empties the page, and only a real browser would notice."""
    told = set(picture(barrier([0.1, 0.4]), PageQuery())) | AROUND
    scripts = "".join(path.read_text() for path in sorted(PAGE.glob("*.js")))
    read = set(re.findall(r"\bstate\.(\w+)", scripts))
    assert read, "the scripts call it otherwise now"
    assert read <= told
    assert {"headline", "forecast", "rows", "curve"} <= read


def test_a_worker_on_its_own_is_compared_with_the_others() -> None:
    state = barrier([0.1, 0.1, 0.1, 0.4])
    state.add(MemberChange(at=9.0, party="worker 3", event="lost", reason="it is silent"))
    state.add(Decided(at=9.5, party="server 0", rank=2, verdict="skip", reason="late"))
    own = picture(state, PageQuery(worker=3))["worker"]
    assert (own["row"]["rank"], own["row"]["here"], own["samples"]) == (3, False, 500)
    assert (own["median_ms"], own["times"]) == (100.0, 4.0)
    assert [event["what"] for event in own["events"]] == ["lost"]
    assert [event["why"] for event in picture(state, PageQuery(worker=2))["worker"]["events"]] == ["late"]
    assert picture(state, PageQuery())["worker"] is picture(state, PageQuery(worker=9))["worker"] is None


def test_causes_of_alerts_have_the_words_of_the_page() -> None:
    state = barrier([0.1, 0.1, 0.1, 0.4])
    assert causes(state) == {"worker": picture(state, PageQuery())["headline"]["sentence"]}
    assert causes(barrier([0.1, 0.1, 0.1, 0.1])) == {}
    assert causes(barrier([0.1, 0.1, 0.1, 0.105])) == {}, "what costs little is no alert"
    state.add(MemberChange(at=9.0, party="server 0", event="lost", reason="gone"))
    assert list(causes(state)) == ["server"]
    calm = barrier([0.1, 0.1])
    calm.add(Evaluated(at=1.0, accuracy=0.1, loss=float("nan"), samples=1, seconds=0.0))
    assert list(causes(calm)) == ["loss"]


def test_throughput_that_falls_to_nothing_is_seen_while_processes_still_tell_what_they_use() -> None:
    state = barrier([0.1, 0.1, 0.1, 0.1], rounds=400)
    end = state.now
    assert "throughput" not in causes(state)
    before = picture(state, PageQuery())["rates"][2]
    assert min(before) > 0
    state.add(ResourceUse(at=end + 30.0, party="worker 0", memory_bytes=1, cores=0.0))
    _, width, after = picture(state, PageQuery())["rates"]
    assert set(after[-int(20 / width) :]) == {0}
    assert causes(state)["throughput"].startswith("Throughput has fallen to 0 samples/s")


def test_what_processes_use_and_links_carry_is_told_and_of_who_is_gone_no_more() -> None:
    state = barrier([0.1, 0.4])
    state.add(ResourceUse(at=1.0, party="worker 1", memory_bytes=7, cores=0.5))
    state.add(LinkTraffic(at=state.now, party="worker 1", other="worker 0", sent=20, received=10, seconds=2.0))
    told = picture(state, PageQuery(sort="rank", worker=1))
    assert [row["use"] and row["use"]["memory"] for row in told["rows"]] == [None, 7]
    assert [link["rate"] for link in told["links"]] == [link["rate"] for link in told["worker"]["links"]] == [[10, 5]]
    assert told["link_count"] == 1
    state.add(MemberChange(at=9.0, party="worker 1", event="lost"))
    assert [row["use"] for row in picture(state, PageQuery(sort="rank"))["rows"]] == [None, None]


def test_what_a_person_asked_is_an_event_of_the_operator_and_sets_the_rate() -> None:
    state = barrier([0.1, 0.4])
    said = [("learning-rate", 0, "times 0.5, 0.25 in all, asked for by the operator"), ("expel", 1, "worker 1")]
    for verdict, rank, reason in said:
        state.add(Decided(at=9.0, party=OPERATOR, rank=rank, verdict=verdict, reason=reason))
    assert state.rate_factor == 0.25
    events = picture(state, PageQuery())["events"]
    assert [(event["who"], event["what"]) for event in events[:2]] == [
        ("operator", "expel"),
        ("operator", "learning-rate"),
    ]
    assert [event["what"] for event in picture(state, PageQuery(worker=1))["worker"]["events"]] == ["expel"]
    assert picture(state, PageQuery(worker=0))["worker"]["events"] == []
