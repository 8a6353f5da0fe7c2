"""The summary of a run that was killed, from its trace."""

from __future__ import annotations

from pathlib import Path

from paceline.core.trace import OVERLAPS, Applied, Decided, Evaluated, Leased, LostWork, Span
from paceline.observe.runs.run_folders import find
from paceline.observe.trace.trace_file import TraceWriter

LEASED = Leased(at=2.0, epochs=1, done=64, twice=0, returned=8, dropped=0, undone=0, left_out=0)


def test_of_a_run_that_was_killed_there_is_what_its_trace_tells(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[run]\nscheme = "ssp"\nseed = 3\n[stop]\ntarget_accuracy = 0.5\n')
    with TraceWriter(tmp_path / "trace.jsonl") as trace:
        for at in (1.0, 2.0):
            trace.append(Span(at=at, rank=1, activity="computing", seconds=0.75, steps=2, samples=64))
            trace.append(Span(at=at, rank=1, activity="communicating", seconds=0.25, exchanges=1))
            trace.append(Evaluated(at=at, accuracy=0.3 * at, loss=1.0, samples=64, seconds=0.0))
        trace.append(Applied(at=2.0, shard=0, ranks=(1,), version=1, staleness=4, weight=1.0, samples=64))
        trace.append(LEASED)
        trace.append(Decided(at=2.0, party="worker 1", rank=1, verdict=OVERLAPS, reason="4 ms, 5 without"))
        trace.append(LostWork(at=2.0, party="worker 1", rank=1, steps=1, samples=32))
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write('{"kind":"span","at"')
    [run], [note] = find([str(tmp_path)])
    s = run.summary
    assert (s.scheme, s.seed, s.seconds, s.samples, s.seconds_to_target) == ("ssp", 3, 2.0, 96, 2.0)
    assert [(w.rank, w.steps, w.exchanges, w.staleness_mean) for w in s.workers] == [(1, 3, 2, 4.0)]
    assert s.workers[0].shares.computing == 0.75
    assert s.workers[0].overlap == "overlaps: 4 ms, 5 without"
    assert s.leased == LEASED
    assert note.endswith("no summary.json, since it did not end; from its trace")
