"""Whole runs from the command line, as a user starts, watches and ends them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.core.trace import Evaluated
from paceline.observe.trace.trace_file import read_trace
from tests.cli.conftest import Paceline
from tests.launch.forked_cli import Warm
from tests.launch.process_tree import all_gone, comm, descendants, within

pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")

SMALL = ["--workers", "2", "--model", "mlp", "--width", "0.25"]


def forked(warm: Warm, folder: Path, *words: str) -> str:
    """What such a command prints in a terminal of 80 columns; it is forked, and must end well."""
    environment = {**os.environ, "COLUMNS": "80"}
    command = warm.paceline(*words, draws=True, folder=folder, environment=environment)
    out, err = command.communicate(90)
    assert command.returncode == 0, err
    return out


def test_train_reports_and_its_settings_can_be_used_again(paceline: Paceline, warm: Warm, tmp_path: Path) -> None:
    done = paceline("train", "--scheme", "ssp", "--ssp.staleness", "2", *SMALL, "--steps", "40", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert done.stdout.startswith("ssp: test accuracy 0.")
    assert "(ended by: steps)" in done.stdout
    assert "computing" in done.stdout
    left = done.stdout.splitlines()[-1]
    assert left.startswith("left in run: ")
    assert all((tmp_path / "run" / name).exists() for name in left.partition(": ")[2].split())
    forked(warm, tmp_path, "train", "--config", "run/config.toml", "--out", "again", "--seed", "2")
    first, second = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("run", "again"))
    assert first["parameters"] == second["parameters"]
    assert second["parameters"].items() >= {"staleness": 2, "weighting": "none"}.items()
    assert [worker["steps"] for worker in second["workers"]] == [40, 40]
    assert (first["seed"], second["seed"]) == (1, 2)


def test_race_leaves_a_folder_a_scheme_and_tells_who_won(warm: Warm, tmp_path: Path) -> None:
    options = ["--slowdown", "1,4", "--step-ms", "4", "--target-accuracy", "0.5", "--eval-every", "0.1"]
    shown = forked(warm, tmp_path, "race", "--schemes", "bsp,esync", *SMALL, *options, "--lr", "0.2", "--out", "race")
    assert {path.name for path in (tmp_path / "race").iterdir()} == {"bsp", "esync", "race.json", "race.png"}
    summaries = json.loads((tmp_path / "race" / "race.json").read_text())
    assert [s["scheme"] for s in summaries] == ["bsp", "esync"]
    for s in summaries:
        assert s == json.loads((tmp_path / "race" / s["scheme"] / "summary.json").read_text())
        assert s["reason"] == "target accuracy"
        trace = read_trace(tmp_path / "race" / s["scheme"] / "trace.jsonl")
        judged = [record for record in trace if isinstance(record, Evaluated)]
        assert s["test_accuracy"] >= 0.5
        reached = [(record.at, record.accuracy) for record in judged if record.accuracy >= 0.5]
        assert (s["seconds_to_target"], s["test_accuracy"]) == min(reached)
    assert (tmp_path / "race" / "race.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"^\* (bsp|esync) +", shown, re.MULTILINE)
    assert "reached 0.5 in" in shown
    assert max(map(len, shown.splitlines()[:-3])) <= 80  # the sentence after the table wraps by itself


def test_on_a_terminal_a_table_shows_every_worker(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "paceline", "train", "--workers", "3", "--slowdown", "1,2,3", "--step-ms", "5"]
    process = subprocess.Popen(
        [*command, "--epochs", "0", "--seconds", "2", "--out", "run"],
        cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "30"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while piece := _read(ours):
            shown += piece
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    for words in ("rank", "samples/s", "esync", "accuracy", "x2", "x3", "left in run"):
        assert words in text, text
    assert max(len(line.rstrip()) for line in re.split(r"[\r\n]+", text) if "left in" not in line) <= 100


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side has closed it
        return b""


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_even_a_run_with_a_worker_that_does_not_answer(warm: Warm, tmp_path: Path, presses: int) -> None:
    words = ["train", *SMALL, "--step-ms", "5", "--epochs", "0", "--seconds", "99", "--out", str(tmp_path / "run")]
    process = warm.paceline(*words)
    try:
        assert within(60, lambda: '"evaluated"' in _text(tmp_path / "run" / "trace.jsonl"))
        family = descendants(process.pid)
        worker = next(pid for pid in family if comm(pid) == "pace worker 1")
        os.kill(worker, signal.SIGSTOP)
        began = time.monotonic()
        for _ in range(presses):
            process.send_signal(signal.SIGINT)
            within(0.3, lambda: process.poll() is not None)
        assert all_gone([process.pid, *family], 5.0)
        seconds = time.monotonic() - began
        assert process.wait(1) == 130
        assert presses == 1 or seconds < 3.0
        _, err = process.communicate()
        assert err.strip().splitlines()[-1] == "paceline: interrupted"
        assert "Traceback" not in err
    finally:
        process.kill()
        process.communicate()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


TRAINS = """
import torch
import paceline

model = torch.nn.Linear(4, 1)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="bsp")
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    pace.step()
pace.close()
print("trained")
"""
RUNS = ("launch -n 2 -s 1 python src/train.py", "train --workers 1 --scheme bsp --data synthetic --total-samples 8")


@pytest.mark.parametrize("words", RUNS, ids=["launch", "train"])
def test_files_named_like_modules_in_the_current_folder_are_seen_by_no_helper_process(
    words: str, tmp_path: Path
) -> None:
    for name in ("signal", "types", "queue", "torch/__init__"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not for you')")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAINS)
    command = [sys.executable, "-P", "-m", "paceline", *words.split()]  # as the installed `paceline` does
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained") == 2 * ("launch" in words)
