"""A job of Slurm that is taken away: over two kinds of nodes, and from a launcher outside."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import slurm
from tests.lab.lab import Lab, missing, not_asked, opened
from tests.lab.launch_run import Launched, path
from tests.lab.test_engines import left
from tests.launch.process_tree import within

WHY_NOT = not_asked() or missing() or slurm.missing()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.timeout(300)]
LOG = "paceline-1.log"
TRAIN = "paceline train --data digits --scheme gsp --epochs 0 --seconds 600 --checkpoint-every 600"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield from opened(tmp_path, 2)


def test_at_notice_a_job_leaves_a_checkpoint_and_goes_on_from_it_once_it_is_back(lab: Lab) -> None:
    log = lab.folder / LOG

    def said(text: str, count: int = 1) -> bool:
        return within(120, lambda: log.exists() and log.read_text().count(text) >= count)

    with slurm.running(lab) as environment:

        def run(*words: str) -> str:
            programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            found = {**os.environ, **environment, "PYTHONPATH": path(), "PATH": programs}
            command = lab.command("h1", *words)
            return subprocess.run(command, cwd=lab.folder, env=found, check=True, capture_output=True, text=True).stdout

        launch = ["paceline", "launch", "--launcher", "slurm", "-n", "1", "--env", "PYTHONPATH", "--write", "job.sh"]
        run(*launch, "--launcher-args", "-w h1 hetjob -w h2", *TRAIN.split())
        run("sbatch", "job.sh")
        assert said("accuracy"), log.read_text()
        run("scancel", "--batch", "--signal=USR1", "1")  # as Slurm does before the time is over
        assert said("the time of job 1 is nearly over: it is queued again"), log.read_text()
        assert within(30, lambda: {*run("squeue", "-h", "-o", "%T").split()} == {"PENDING"})

        # The job has left all its hosts: from then on nothing sets its time anew but this test.
        assert within(60, lambda: run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(lab.names)))

        def going_on() -> bool:
            """Slurm would wait for two minutes.

            Not at once: a host refuses credentials of a job ("revoked") that are no later than its end there, in whole
            seconds, and Slurm drops the job then. It begins jobs of several parts in a pass of its own, which every
            change of a job breaks off.
            """
            with contextlib.suppress(subprocess.CalledProcessError):  # it has begun meanwhile
                run("scontrol", "update", "JobId=1", "StartTime=now+3")
            return within(20, lambda: "RUNNING" in run("squeue", "-h", "-o", "%T"))

        assert within(90, going_on)
        assert said("resumes checkpoint 1 of runs/slurm-1"), log.read_text()
        assert said("accuracy", log.read_text().count("accuracy") + 1), log.read_text()
        run("scancel", "1")
        assert said("paceline: interrupted", 2), log.read_text()
        for host in lab.names:
            assert within(30, lambda host=host: not left(lab, host, "slurm")), left(lab, host, "slurm")  # type: ignore[misc]
    out = lab.folder / "runs" / "slurm-1"
    trace = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
    assert {row["party"]: row["host"] for row in trace if "host" in row} == {
        "evaluator": "h1",
        "server 0": "h1",
        "worker 0": "h2",
    }
    assert len([*(out / "checkpoints").iterdir()]) == 2  # one of each incarnation, when it was taken away


def test_a_launcher_outside_of_the_job_that_is_taken_away_ends_in_order_and_says_why(lab: Lab) -> None:
    with slurm.running(lab) as environment:
        words = ["--launcher", "slurm", "-n", "2", "--launcher-args", "-N 2", *TRAIN.split(), "--out", "run"]
        launched = Launched(lab, *words, **environment)
        assert launched.says("accuracy", 120), launched.said
        command = lab.command(
            "h1", "scancel", "1"
        )  # what Slurm does with a job that it preempts and cannot queue again
        subprocess.run(command, env={**os.environ, **environment}, check=True)
        assert launched.says("slurm takes all hosts of this run away (SIGTERM to each agent)", 30), launched.said
        assert launched.ends(60) == 143, launched.said
        for host in lab.names:
            assert within(30, lambda host=host: not left(lab, host, "slurm")), left(lab, host, "slurm")  # type: ignore[misc]
    assert json.loads((lab.folder / "run" / "summary.json").read_text())["reason"] == "interrupted by SIGTERM"
    assert len([*(lab.folder / "run" / "checkpoints").iterdir()]) == 1
