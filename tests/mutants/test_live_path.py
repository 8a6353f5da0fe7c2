"""Bugs planted in the code of live runs: the listed seed of the fuzzer finds each, or the listed recording."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from tests.mutants.mutated import ROOT, Mutant, mutants

MUTANTS = mutants()
AREAS = {
    "replication",
    "recovery",
    "leases",
    "expulsion",
    "streams",
    "membership",
    "checkpoints",
    "stop rules",
    "bring-up",
    "connections",
    "evaluator",
    "versions",
    "leaving",
    "calls",
}
PART = MUTANTS[::3]


def test_each_line_stands_once_where_the_list_says() -> None:
    assert [mutant.name for mutant in MUTANTS if mutant.source() == (ROOT / mutant.file).read_text()] == []
    assert {mutant.area for mutant in MUTANTS} == AREAS
    assert len(MUTANTS) >= 30
    assert [mutant.name for mutant in MUTANTS if (mutant.seed >= 0) == bool(mutant.recording)] == []


def test_the_part_that_is_run_has_most_areas_and_both_ways_to_find_them() -> None:
    areas = Counter(mutant.area for mutant in PART)
    assert len(areas) >= 5
    assert {bool(mutant.recording) for mutant in PART} == {True, False}


@pytest.mark.parametrize("mutant", PART, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_seen(mutant: Mutant) -> None:
    """Without the bug they pass: `sim/fuzzing/test_fuzz.py` and `runtime/replay/test_run_replay.py` see to that."""
    command = [sys.executable, "-m", "tests.mutants.mutated", mutant.name, *mutant.command]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 1, run.stderr or run.stdout
    seen = "first difference: " if mutant.recording else f"VIOLATION at seed {mutant.seed}: "
    assert seen in run.stdout, run.stderr
