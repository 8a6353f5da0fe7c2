"""Bugs planted in code that live runs and the fuzzer both run: the seed that is listed finds each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutants.mutated import ROOT, Mutant, mutants

MUTANTS = mutants()
AREAS = {"replication", "recovery", "leases", "expulsion", "streams", "membership", "checkpoints", "stop rules"}
PART = MUTANTS[::3]


def played(mutant: Mutant) -> subprocess.CompletedProcess[str]:
    words = ["fuzz", "--first", str(mutant.seed), "--seeds", "1", "--shrink-seconds", "0"]
    command = [sys.executable, "-m", "tests.mutants.mutated", mutant.name, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_each_line_stands_once_where_the_list_says() -> None:
    assert [mutant.name for mutant in MUTANTS if mutant.source().count(mutant.new) < 1] == []
    assert {mutant.area for mutant in MUTANTS} <= AREAS
    assert len(MUTANTS) >= 30


@pytest.mark.parametrize("mutant", PART, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_seen_at_its_seed(mutant: Mutant) -> None:
    """Without the bug these seeds pass: `sim/fuzzing/test_fuzz.py` plays them."""
    run = played(mutant)
    assert run.returncode == 1, run.stderr or run.stdout
    assert f"VIOLATION at seed {mutant.seed}: " in run.stdout
