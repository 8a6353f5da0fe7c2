"""Jobs of Slurm: the script for sbatch, groups of nodes, and what happens when a job is taken away."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.launch.engines.slurm import TERMINATED, Slurm, in_groups, until_notice
from paceline.launch.remote.hostfile import parse_hosts

AGENT = ["python", "-m", "paceline.launch.remote.agent"]
JOB = {"SLURM_JOB_ID": "7"}
TWO_GROUPS = {**JOB, "SLURM_HET_SIZE": "3", "SLURM_JOB_NUM_NODES_HET_GROUP_0": "2"}
ROOM = {"SLURM_NTASKS_HET_GROUP_1": "4", "SLURM_JOB_NUM_NODES_HET_GROUP_2": "2"}
LAUNCH = ["launch", "--launcher", "slurm", "-i", "127.0.0.1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, outside of any job."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    return tmp_path


# ---- the script --------------------------------------------------------------------------------------------
def written(*words: str) -> list[str]:
    assert main([*LAUNCH, *words]) == 0
    assert os.access("job.sh", os.X_OK)
    return Path("job.sh").read_text().splitlines()


def asked(lines: list[str]) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]


def test_the_script_is_the_launcher_itself_so_that_signals_for_the_script_reach_it(here: Path) -> None:
    lines = written("-n", "4", "--launcher-args", "-p gpu --time=1:00:00", "--write", "job.sh", "python", "a b.py")
    assert {"--requeue", "--signal=B:USR1@90", "--ntasks=4", "-p gpu", "--time=1:00:00"} <= {*asked(lines)}
    assert lines[0] == "#!/bin/bash"
    folder = "runs/slurm-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"  # a script of one's own begins anew
    assert lines[-1] == f"exec paceline launch --out {folder} --launcher slurm -i 127.0.0.1 -n 4 python 'a b.py'"


def test_a_run_that_can_go_on_has_one_folder_in_all_lives_of_its_job(here: Path) -> None:
    assert "--out runs/slurm-$SLURM_JOB_ID --launcher" in written("--write", "job.sh", "paceline", "train")[-1]
    script = ("--checkpoint-every", "60", "--write", "job.sh", "python", "a.py")
    assert "--out runs/slurm-$SLURM_JOB_ID --launcher" in written(*script)[-1]
    last = written("--write=job.sh", "paceline", "train", "--out", "mine")[-1]
    assert last == "exec paceline launch --launcher slurm -i 127.0.0.1 paceline train --out mine"


def test_what_a_script_calls_out_is_its_own(here: Path) -> None:
    assert " launch --out runs/slurm-" in written("--write", "job.sh", "python", "train.py", "--out", "mine")[-1]


def test_words_for_slurm_that_cannot_be_read_are_told_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LAUNCH, "--launcher-args=--comment='a", "--write", "job.sh", "python", "train.py"]) == 2
    assert capsys.readouterr().err == "paceline: --launcher-args: No closing quotation\n"


def test_a_job_that_has_come_back_goes_on_with_all_workers_even_if_it_began_with_fewer(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-n", "2", "--dry-run", "--out", "runs/a", "paceline", "train", "--initial-workers", "1"]
    for name, value in {**JOB, "SLURM_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert main([*LAUNCH, *words]) == 0, capsys.readouterr().err


def test_a_job_of_two_kinds_of_nodes_has_its_servers_on_the_first(here: Path) -> None:
    words = ["-n", "4", "-s", "2", "--launcher-args", "-p cpu hetjob -p gpu", "--write", "job.sh", "paceline", "train"]
    of_the_job = asked(written(*words))[-6:]
    assert of_the_job == ["--ntasks=2", "--ntasks-per-node=1", "-p cpu", "hetjob", "--ntasks=4", "-p gpu"]


def test_a_dry_run_prints_the_script_and_where_none_can_be_written_one_line_says_so(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LAUNCH, "--dry-run", "paceline", "train"]) == 0
    assert "#SBATCH --requeue\n" in capsys.readouterr().out
    assert main([*LAUNCH, "--write", "no/job.sh", "paceline", "train"]) == 2
    assert main(["launch", "--write", "job.sh", "paceline", "train"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [error for error in errors if "--write" in error] == errors
    assert len(errors) == 2
    assert list(here.iterdir()) == []


# ---- groups ------------------------------------------------------------------------------------------------
def test_workers_fill_the_groups_after_the_first_which_has_an_agent_on_each_node_for_servers() -> None:
    engine = in_groups(Slurm(inside=True, extra=("--exact",)), TWO_GROUPS | ROOM, workers=5, servers=3)
    assert engine.apart == 2
    parts = shlex.join(engine.command(7, AGENT)).removeprefix("srun ").split(" : ")
    assert [part.split(" --kill-on")[0] for part in parts] == [
        "--het-group=0 --ntasks=2 --nodes=2",
        "--het-group=1 --ntasks=4",
        "--het-group=2 --ntasks=1",
    ]
    assert all(part.endswith(shlex.join(["--exact", *AGENT])) and "--overlap" in part for part in parts)


def test_without_servers_nobody_is_started_on_the_first_group_and_without_groups_nothing_changes() -> None:
    engine = in_groups(Slurm(inside=True), TWO_GROUPS | ROOM, workers=4, servers=0)
    assert engine.command(4, AGENT)[:3] == ["srun", "--het-group=1", "--ntasks=4"]
    assert "--het-group=0" not in engine.command(4, AGENT)
    assert in_groups(Slurm(), JOB, workers=4, servers=1) == Slurm()


def test_more_workers_than_there_is_room_for_are_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="7 workers, and room for 6 .* give -n 6"):
        in_groups(Slurm(), TWO_GROUPS | ROOM, workers=7, servers=1)


# ---- a job that is taken away ------------------------------------------------------------------------------
@pytest.fixture
def requeued(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What scontrol was asked for."""
    (here / "scontrol").write_text('#!/bin/sh\necho "$@" >> asked\n')
    (here / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")
    return lambda: (here / "asked").read_text().splitlines() if (here / "asked").exists() else []


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """SIGTERM ends what goes on, as in a run."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    yield
    signal.signal(signal.SIGTERM, before)


def noticed(code: int = 0) -> int:
    for _ in range(2):  # once more than needed
        signal.raise_signal(signal.SIGUSR1)
    return code


def test_at_notice_a_run_ends_as_by_sigterm_and_its_job_is_queued_again(
    requeued: Callable[[], list[str]], terminated: None
) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    assert until_notice(JOB, noticed) == TERMINATED
    assert requeued() == ["requeue 7"]
    assert signal.getsignal(signal.SIGUSR1) == before


def test_a_job_that_is_done_or_was_ended_by_somebody_else_is_not_queued_again(
    requeued: Callable[[], list[str]], terminated: None
) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # it came when the run was over
    assert until_notice(JOB, noticed) == 0
    assert until_notice(JOB, lambda: TERMINATED) == TERMINATED
    assert requeued() == []


def test_a_job_that_may_not_be_queued_again_says_so(
    requeued: Callable[[], list[str]], terminated: None, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "scontrol").write_text("#!/bin/sh\necho 'Requested operation is presently disabled' >&2; exit 1\n")
    assert until_notice(JOB, noticed) == TERMINATED
    assert capsys.readouterr().err.splitlines()[1:] == [
        "paceline: scontrol requeue 7: Requested operation is presently disabled; `#SBATCH --requeue` allows it"
    ]


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [("", [], "never"), ("0", [], "never"), ("2", [], "auto"), ("2", ["--resume", "never"], "never")],
)
def test_a_job_that_has_come_back_goes_on_unless_it_is_told_not_to(
    count: str, words: list[str], expected: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Config] = []
    monkeypatch.setattr(
        "paceline.cli.support.engine_launch._run", lambda engine, options, config, *_: found.append(config) or 0
    )
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", count or "0")
    Path("train.py").touch()
    assert main([*LAUNCH, "--out", "run", "paceline", "train", *words]) == 0
    script = ["--checkpoint-every", "60", *words, sys.executable, "train.py"]
    assert main([*LAUNCH, "--out", "run", *script]) == 0
    assert main([*LAUNCH, "--out", "other", sys.executable, "train.py"]) == 0  # it has no checkpoints
    assert [config.checkpoint.resume for config in found] == [expected, expected, "never"]


def test_one_that_was_killed_before_its_first_checkpoint_begins_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "run").mkdir()
    (here / "run" / "trace.jsonl").write_text("")
    monkeypatch.setattr("paceline.cli.support.engine_launch._run", lambda *_: 0)
    assert main([*LAUNCH, "--out", "run", "paceline", "train"]) == 2
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert main([*LAUNCH, "--out", "run", "paceline", "train"]) == 0


AGENT = ["python", "-m", "agent"]


def test_srun_asks_for_an_allocation_where_it_has_none_and_overlaps_with_the_launcher_where_it_has() -> None:
    outside = Slurm(hosts=parse_hosts("n1\nn2\n"), extra=("--partition=gpu",)).command(2, AGENT)
    assert outside[:2] == ["srun", "--ntasks=2"]
    assert {"--no-kill", "--job-name=paceline", "--nodelist=n1,n2", "--partition=gpu"} <= {*outside}
    assert outside[-3:] == AGENT
    within = Slurm(inside=True).command(2, AGENT)
    assert "--overlap" in within
    assert not {"--no-kill", "--job-name=paceline"} & {*within}
