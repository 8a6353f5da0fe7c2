"""`paceline summary`: which runs belong together, what is told of them, and what of runs that are not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.core.errors import ConfigError
from paceline.core.trace import Applied, Evaluated, Leased, Span
from paceline.observe.formatting.number_format import leased_text
from paceline.observe.runs.run_folders import RunFolder, find, groups
from paceline.observe.runs.seed_statistics import Spread, standings
from paceline.observe.runs.summary import write_summary
from paceline.observe.terminal.comparison import tables, to_json
from paceline.observe.trace.trace_file import TraceWriter
from tests.observe.fake_runs import summary


def run(scheme: str, seed: int = 0, facts: dict[str, Any] | None = None, **changed: Any) -> RunFolder:
    return RunFolder(path=Path(f"{scheme}{seed}"), summary=summary(scheme, seed=seed, **changed), facts=facts or {})


LEASED = Leased(at=2.0, epochs=1, done=64, twice=0, returned=8, dropped=0, undone=0, left_out=0)
RACES = [
    run("bsp", 0, seconds_to_target=20.0),
    run("esync", 0, seconds_to_target=5.0),
    run("bsp", 1, seconds_to_target=30.0),
    run("esync", 1, seconds_to_target=6.0),
    run("esync", 2, seconds_to_target=None),
]


def test_runs_that_differ_in_their_seed_only_are_one_group() -> None:
    assert [(g.name, len(g.runs)) for g in groups(RACES)] == [("bsp", 2), ("esync", 3)]


def test_what_tells_two_groups_of_one_scheme_apart_is_in_their_names() -> None:
    wide, narrow = {"data.partition": "uniform", "run.seed": 1}, {"data.partition": "class", "run.seed": 2}
    names = [g.name for g in groups([run("esync", 1, wide), run("esync", 2, narrow), run("bsp", 3, wide)])]
    assert names == ["esync partition=uniform", "esync partition=class", "bsp"]


def test_mixed_runs_fit_80_columns_and_long_names_stand_above() -> None:
    told: list[RunFolder] = []
    for scheme in ("bsp", "hybrid", "asp"):
        for shares in ("uniform", "class"):
            facts = {
                "data.partition": shares,
                "cluster.slowdown": f"1,1,{len(shares)}",
                "codec.up": f"topk:{len(shares)}",
            }
            for seed, seconds in ((0, 123.4), (1, None), (2, 1234.5)):
                reason = "target accuracy" if seconds else "interrupted by SIGTERM"
                more: dict[str, Any] = {"seconds_to_target": seconds, "reason": reason, "bytes_up": 10**10 * (seed + 1)}
                told.append(run(scheme, seed, {**facts, "run.seed": seed}, **more))
    told.append(run("esync", 0))
    lines = tables(groups(told)).splitlines()
    assert max(map(len, lines)) <= 80
    named = [line for line in lines if line.startswith("hybrid [")]
    assert len(named) == 3 * 2  # above, and in both tables
    assert any(": hybrid " in line for line in named)
    assert any(line.startswith("esync ") for line in lines)


def test_a_speed_up_is_that_of_runs_of_one_seed_with_mean_and_spread() -> None:
    best = standings(groups(RACES))[1]
    assert (best.name, best.reached) == ("esync", 2)  # behind bsp, all of whose runs reached the target
    assert best.speedup == Spread(4.5, pytest.approx(0.7071, abs=1e-4), 2)  # 20 / 5 and 30 / 6
    assert best.seconds_to_target
    assert best.seconds_to_target.text(lambda s: f"{s:.1f} s") == "5.5±0.7 s"


def test_the_table_says_how_many_runs_there_were_and_how_many_missed() -> None:
    lines = tables(groups(RACES)).splitlines()
    assert lines[1].split()[:6] == ["bsp", "2", "25.0±7.1", "s", "1.0", "0.910±0.000"]
    assert lines[2].split()[:7] == ["esync", "3", "5.5±0.7", "s", "(1", "missed)", "4.5±0.7"]
    assert lines[-1] == "bsp reached 0.9 in 25.0±7.1 s over 2 runs."


def test_the_json_has_every_run_and_every_group() -> None:
    document = json.loads(to_json(groups(RACES), ["x: no such folder; skipped"]))
    assert document["baseline"] == "bsp"
    assert [(g["name"], g["runs"], g["reached"]) for g in document["groups"]] == [("bsp", 2, 2), ("esync", 3, 2)]
    assert [(r["path"], r["group"]) for r in document["runs"][:2]] == [("bsp0", "bsp"), ("bsp1", "bsp")]
    assert document["notes"] == ["x: no such folder; skipped"]


def test_a_folder_of_runs_is_all_of_them_and_what_is_no_run_is_skipped_with_a_note(tmp_path: Path) -> None:
    write_summary(summary("bsp"), tmp_path / "race" / "bsp" / "summary.json")
    write_summary(summary("asp"), tmp_path / "race" / "asp" / "summary.json")
    (tmp_path / "spoilt").mkdir()
    (tmp_path / "spoilt" / "summary.json").write_text("{")
    runs, notes = find([str(tmp_path / name) for name in ("race", "spoilt", "nowhere")])
    assert [r.summary.scheme for r in runs] == ["asp", "bsp"]
    assert [note.rpartition("/")[2].partition(":")[0] for note in notes] == ["summary.json", "nowhere"]
    with pytest.raises(ConfigError, match="no run was found"):
        find([str(tmp_path / "nowhere")])


def test_of_a_run_that_was_killed_there_is_what_its_trace_tells(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[run]\nscheme = "ssp"\nseed = 3\n[stop]\ntarget_accuracy = 0.5\n')
    with TraceWriter(tmp_path / "trace.jsonl") as trace:
        for at in (1.0, 2.0):
            trace.append(Span(at=at, rank=1, activity="computing", seconds=0.75, steps=2, samples=64))
            trace.append(Span(at=at, rank=1, activity="communicating", seconds=0.25, exchanges=1))
            trace.append(Evaluated(at=at, accuracy=0.3 * at, loss=1.0, samples=64, seconds=0.0))
        trace.append(Applied(at=2.0, shard=0, ranks=(1,), version=1, staleness=4, weight=1.0, samples=64))
        trace.append(LEASED)
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write('{"kind":"span","at"')
    [run], [note] = find([str(tmp_path)])
    s = run.summary
    assert (s.scheme, s.seed, s.seconds, s.samples, s.seconds_to_target) == ("ssp", 3, 2.0, 128, 2.0)
    assert [(w.rank, w.steps, w.exchanges, w.staleness_mean) for w in s.workers] == [(1, 4, 2, 4.0)]
    assert s.workers[0].shares.computing == 0.75
    assert s.leased == LEASED
    assert note.endswith("no summary.json, since it did not end; from its trace")


def test_the_command_shows_the_workers_of_a_single_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(summary("bsp", workers=3), tmp_path / "a" / "summary.json")
    assert main(["summary", str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out
    assert "3 workers" in out
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["0", "1", "2"]
    assert "leased" not in out
    assert main(["summary", str(tmp_path / "b")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_what_became_of_leased_data_is_told_with_the_workers_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_summary(summary("asp", leased=LEASED), tmp_path / "a" / "summary.json")
    assert main(["summary", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.endswith("\n" + leased_text(LEASED) + "\n")


def test_where_no_target_was_set_nobody_is_times_as_fast_and_the_best_is_named_as_in_the_table() -> None:
    none: dict[str, Any] = {"target_accuracy": None, "seconds_to_target": None}
    wide = run("esync", 1, {"data.partition": "uniform"}, test_accuracy=0.5, **none)
    narrow = run("esync", 1, {"data.partition": "class"}, test_accuracy=0.25, **none)
    found = groups([wide, narrow])
    assert [standing.speedup for standing in standings(found)] == [None, None]
    assert tables(found).splitlines()[-1].startswith("esync partition=uniform ended with the best accuracy, 0.500")
    assert tables(groups([wide])).splitlines()[-1] == "esync ended with accuracy 0.500 after 10.0 s."
