"""A run whose output is lost ends as it would have ended."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.cli.support.output import dropping_output, replacing_unprintable
from paceline.cli.support.run_and_report import run_and_report
from tests.observe.fake_runs import summary

SIMULATION = "simulate --scheme bsp --parameters 1000 --workers 2 --step-ms 50 --timing-only --seconds 1"


def test_the_standard_streams_are_given_back() -> None:
    before = sys.stdout, sys.stderr
    with dropping_output():
        assert (sys.stdout, sys.stderr) != before
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("where", ["> /dev/full 2>&1", "2>&1 | true"], ids=["full disk", "closed pipe"])
def test_a_run_without_anywhere_to_print_leaves_its_summary_and_exits_with_0(where: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m paceline {SIMULATION} --out {tmp_path}/run {where}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], timeout=300)
    assert done.returncode == 0
    assert (tmp_path / "run" / "summary.json").exists()


ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


# In one process, one command after the other: to start it takes most of the time.
COMMANDS = f"""
import sys
from paceline.cli.main import main
for name in sys.argv[1:]:
    assert main([*{SIMULATION!r}.split(), "--out", name]) == 0
print("simulated", file=sys.stderr, flush=True)
for name in sys.argv[1:]:
    assert main(["summary", name]) == 0
assert main(["schemes"]) == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
@pytest.mark.parametrize("environment", [{}, ASCII], ids=["utf-8", "ascii"])
def test_a_folder_of_any_name_is_fine_whatever_can_be_printed(tmp_path: Path, environment: dict[str, str]) -> None:
    names = [b"b\xffad", "\u00e9".encode()]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *names],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stderr.endswith(b"simulated\n"), "summary and schemes have nothing to say there"
    for name in names:
        assert (Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))) / "summary.json").exists()


def test_standard_output_is_as_strict_as_before_when_a_command_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with replacing_unprintable():
        print("Ünïcode ─", flush=True)
    assert raw.getvalue() == b"?n?code ?\n"
    assert sys.stdout.errors == "strict"


def test_training_whose_reader_leaves_after_a_line_leaves_model_and_summary(tmp_path: Path) -> None:
    options = "--data digits --workers 1 --epochs 2"
    command = (
        f"{sys.executable} -m paceline train {options} --out {tmp_path}/run 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"
    )
    assert subprocess.run(["bash", "-c", command], timeout=120, stdout=subprocess.DEVNULL).returncode == 0
    assert {"model.safetensors", "summary.json"} <= {path.name for path in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize(("left", "code"), [(("summary.json", "model.safetensors"), 0), (("summary.json",), 1)])
def test_a_run_whose_model_could_not_be_saved_anywhere_is_no_success(
    left: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = SimpleNamespace(run=summary, interrupt=lambda _: None, interrupted="", left={"run": left})
    assert run_and_report(runner) == code
    said, told = capsys.readouterr()
    assert said.splitlines()[-1] == f"left in run: {' '.join(left)}"
    assert ("could not be saved anywhere" in told) == bool(code)


@pytest.mark.parametrize("where", [">&-", "<&- >&- 2>&-"], ids=["output", "all three"])
def test_a_run_with_closed_streams_leaves_its_summary(where: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m paceline {SIMULATION} --out {tmp_path}/run {where}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_command_whose_answer_goes_to_a_closed_output_says_so() -> None:
    command = f"{sys.executable} -m paceline schemes >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "paceline: standard output is closed, and this command writes its answer there\n"


def test_streams_that_are_opened_are_passed_on_to_programs() -> None:
    """They would be closed again when a helper process is executed."""
    program = (
        "import subprocess, sys\n"
        "from paceline.cli.support.output import open_standard_streams\n"
        "open_standard_streams()\n"
        "child = 'import os; [os.fstat(number) for number in range(3)]'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', child]).returncode)\n"
    )
    command = shlex.join([sys.executable, "-c", program])
    assert subprocess.run(["bash", "-c", f"{command} <&- >&- 2>&-"], timeout=60).returncode == 0
