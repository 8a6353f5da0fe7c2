"""Scripts after public reports: the two quickest run here, `benchmarks/cases.py` runs them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import cases

SCRIPT = Path(cases.__file__)


def test_the_quickest_cases_are_right() -> None:
    command = [sys.executable, SCRIPT, "--only", "few_trained,expanded_buffer"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("| right: ") == 2, run.stdout


def test_each_script_has_a_row_and_names_its_report() -> None:
    scripts = {path.stem: path.read_text() for path in cases.SCRIPTS.glob("[a-z]*.py")}
    assert scripts.keys() == {case.script for case in cases.CASES}
    assert all(text.startswith("# ") for text in scripts.values())


def printed(*reports: dict[str, object]) -> str:
    return "".join(f"[worker {rank}] {json.dumps(one)}\n" for rank, one in enumerate(reports)) + "left in run\n"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (printed({"off": 1e-8}, {"off": 2e-8}), "right"),
        (printed({"off": 1e-8}, {"off": 0.1}), "WRONG"),
        (printed({"off": 1e-8}), "WRONG"),
        ("[worker 0] paceline.core.errors.ConfigError: call paceline.join again\n", "refused"),
        ("[worker 0] RuntimeError: it is broken\n", "WRONG"),
        ("", "WRONG"),
    ],
)
def test_a_case_is_judged_by_what_all_workers_report(text: str, verdict: str) -> None:
    case = cases.Case("unfreeze", 2, "bsp", cases.ROUNDING, way="paceline.join again")
    assert cases.judge(case, text)[0] == verdict


def test_where_nothing_but_the_error_is_right_a_report_is_not() -> None:
    case = cases.Case("step_in_backward", 1, "esync", None, way="leave it out")
    assert cases.judge(case, "[worker 0] ConfigError: leave it out\n")[0] == "right"
    assert cases.judge(case, printed({"end": True}))[0] == "WRONG"


def test_a_case_that_lacks_a_package_is_skipped_in_a_plain_line() -> None:
    outcome = cases.run_case(cases.Case("frozen_body", 1, "bsp", None, needs=("no_such_package",)), 1)
    assert (outcome.verdict, outcome.gave) == ("skipped", "needs no_such_package: not installed")


def test_a_case_that_takes_too_long_is_wrong_and_leaves_no_process() -> None:
    outcome = cases.run_case(cases.Case("few_trained", 1, "asp 1", None), 0.01)
    assert (outcome.verdict, outcome.gave) == ("WRONG", "not ended within 0.01 s")
