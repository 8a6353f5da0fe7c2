"""What the user reads of workers that fail, leave and return."""

from __future__ import annotations

import dataclasses
from unittest.mock import MagicMock, Mock

import pytest

from paceline.config import build
from paceline.core.coordination.control_messages import Hello
from paceline.core.coordination.party import Party, server, worker
from paceline.core.trace import (
    DOES_NOT_OVERLAP,
    NO_STEPS,
    NOT_SAVED,
    OVERLAPS,
    Decided,
    Evaluated,
    LostWork,
    MemberChange,
    Record,
    in_parts_of,
)
from paceline.runtime.supervisor.messages import MessagesForUser, RunHeader


class Statistics:
    """Twelve steps of every worker; `incarnations` of each so far."""

    def __init__(self, incarnations: int = 2) -> None:
        self._incarnations = incarnations

    def steps(self, who: Party) -> int:
        return 12

    def incarnations(self, who: Party) -> int:
        return self._incarnations


def hello(host: str, pid: int) -> Hello:
    return Hello(address="", pid=pid, host=host, device="cpu")


def messages(incarnations: int = 2) -> MessagesForUser:
    of = MessagesForUser(Statistics(incarnations))  # type: ignore[arg-type]
    of.joined(worker(0), hello("h1", 7))
    of.joined(server(0), hello("h2", 8))
    return of


def change(who: Party, event: str, reason: str = "why") -> MemberChange:
    return MemberChange(at=1.0, party=str(who), event=event, reason=reason)


@pytest.mark.parametrize(
    ("who", "event", "line"),
    [
        (worker(0), "lost", "worker 0 (h1, pid 7) lost after 12 steps: why"),
        (server(0), "lost", "server 0 (h2, pid 8) lost: why"),
        (worker(0), "drained", "worker 0 (h1, pid 7) was drained after 12 steps: why"),
        (worker(0), "expelled", "worker 0 (h1, pid 7) was expelled after 12 steps: why"),
        (worker(0), "returned", "worker 0 (h1, pid 7) is back: why"),
        (worker(0), "left", ""),
    ],
)
def test_a_change_is_told_with_host_process_and_steps(who: Party, event: str, line: str) -> None:
    assert messages().line_of(change(who, event)) == line


def test_a_worker_that_comes_for_the_first_time_joins_and_is_not_back() -> None:
    assert messages(incarnations=1).line_of(change(worker(0), "returned")) == "worker 0 (h1, pid 7) joined: why"


def test_what_is_replaced_is_named_by_where_it_was_lost_and_where_the_next_one_is() -> None:
    of = messages()
    of.line_of(change(server(0), "lost"))
    of.joined(server(0), hello("h9", 70))
    assert of.line_of(change(server(0), "replaced")) == "server 0 (h2, pid 8; now h9, pid 70) was replaced: why"


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (Decided(at=1.0, party="evaluator", rank=0, verdict=NOT_SAVED, reason="no space left"), "no space left"),
        (Decided(at=1.0, party="server 0", rank=0, verdict="wait", reason="2 clocks ahead"), ""),
        (Evaluated(at=1.0, samples=1, accuracy=0.5, loss=1.0, seconds=0.1), ""),
    ],
)
def test_of_other_records_only_what_was_not_saved_is_told(record: Record, line: str) -> None:
    assert messages().line_of(record) == line


def test_who_makes_no_steps_is_named_whoever_found_it() -> None:
    for party in ("coordinator", "worker 1"):
        record = Decided(at=1.0, party=party, rank=1, verdict=NO_STEPS, reason="why")
        assert messages().line_of(record) == "worker 1 makes no steps: why"


def test_a_worker_whose_memory_was_exhausted_is_named() -> None:
    record = Decided(at=1.0, party="worker 1", rank=1, verdict=in_parts_of(48), reason="out of memory at 96 samples")
    line = messages().line_of(record)
    assert line == "worker 1 makes its steps in parts of at most 48 samples: out of memory at 96 samples"


def test_work_that_is_lost_is_named_with_its_number_and_its_group() -> None:
    record = LostWork(at=1.0, party="worker 1", rank=1, steps=5, samples=1040)
    line = messages().line_of(record)
    assert line == "1,040 samples of local work are lost with worker 1, and count no more"
    line = messages().line_of(dataclasses.replace(record, rank=3, group=0))
    assert line == "1,040 samples of worker 3 in group 0 are lost with worker 1, which spoke for it, and count no more"


def test_one_line_tells_what_workers_have_measured_of_overlap_and_another_that_of_who_differs() -> None:
    of = messages()

    def told(rank: int, verdict: str) -> str:
        return of.line_of(Decided(at=1.0, party=f"worker {rank}", rank=rank, verdict=verdict, reason="5 ms, 6 without"))

    assert told(3, OVERLAPS) == "worker 3 overlaps: 5 ms, 6 without (--overlap)"
    assert told(0, OVERLAPS) == ""
    assert told(1, DOES_NOT_OVERLAP) == "worker 1 does not overlap: 5 ms, 6 without (--overlap)"
    assert told(2, DOES_NOT_OVERLAP) == ""


@pytest.mark.parametrize(("wanted", "lines"), [("none", []), ("auto", ["cores of h1: worker 0 has 0; worker 1 has 1"])])
def test_the_first_lines_say_which_cores_workers_are_bound_to_where_that_was_asked_for(
    wanted: str, lines: list[str]
) -> None:
    config = build({"run": {"scheme": "bsp"}, "cluster": {"bind_cores": wanted, "workers": 2}})
    header = RunHeader(config, (), Mock(note=""), None, has_free_places=False)
    for rank in (1, 0):
        header.joined(worker(rank), Hello(address="", pid=1, host="h1", device="cpu", cpus=(rank,)))
    header.joined(server(0), Hello(address="", pid=1, host="h1", device="cpu", cpus=(0, 1)))
    plan, recipe = MagicMock(notes=(), crowded="", allreduce=""), Mock(rate_factors=())
    recipe.robust.note.return_value = ""
    assert [line for line in header.lines(plan, recipe) if line.startswith("cores")] == lines
