"""`paceline summary`: which runs belong together, what is told of them, and what of runs that are not there."""

from __future__ import annotations

import json
from typing import Any

from paceline.observe.runs.run_folders import RunFolder, groups
from paceline.observe.runs.seed_statistics import standings
from paceline.observe.terminal.comparison import tables, to_json
from tests.observe.terminal.races import RACES, run


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


def test_where_no_target_was_set_nobody_is_times_as_fast_and_the_best_is_named_as_in_the_table() -> None:
    none: dict[str, Any] = {"target_accuracy": None, "seconds_to_target": None}
    wide = run("esync", 1, {"data.partition": "uniform"}, test_accuracy=0.5, **none)
    narrow = run("esync", 1, {"data.partition": "class"}, test_accuracy=0.25, **none)
    found = groups([wide, narrow])
    assert [standing.speedup for standing in standings(found)] == [None, None]
    assert tables(found).splitlines()[-1].startswith("esync partition=uniform ended with the best accuracy, 0.500")
    assert tables(groups([wide])).splitlines()[-1] == "esync ended with accuracy 0.500 after 10.0 s."
