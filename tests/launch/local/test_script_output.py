"""What scripts print: warnings that many workers say alike are shown once, logs have everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.launch.local import script_output
from paceline.launch.local.script_output import Losses, Output

WARNING = "train.py:12: UserWarning: pace.step() found no gradient"


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning is held back until the end, however slow the machine is."""
    monkeypatch.setattr(script_output, "HOLD_SECONDS", 600.0)


@pytest.mark.usefixtures("unhurried")
def test_forty_workers_that_warn_alike_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Output(str(tmp_path))
    for rank in range(40):
        said(f"worker {rank}", WARNING)
        said(f"worker {rank}", "  pace.step()")
    said.close()
    assert capsys.readouterr().out.splitlines() == [f"[workers 0-39] {WARNING}", "[workers 0-39]   pace.step()"]
    assert (tmp_path / "logs" / "worker-17.log").read_text() == f"{WARNING}\n  pace.step()\n"


@pytest.mark.usefixtures("unhurried")
def test_who_warns_alone_is_named_with_its_host_and_other_lines_do_not_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Output(str(tmp_path))
    said("worker 3 (gpu1)", WARNING)
    said("worker 3 (gpu1)", "epoch 1")
    said("worker 0 (gpu0)", "  indented, and no source line")
    assert capsys.readouterr().out.splitlines() == [
        "[worker 3 (gpu1)] epoch 1",
        "[worker 0 (gpu0)]   indented, and no source line",
    ]
    said.close()
    assert capsys.readouterr().out.splitlines() == [f"[worker 3 (gpu1)] {WARNING}"]


def test_a_warning_is_shown_while_the_script_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Output(str(tmp_path))
    said("worker 1", WARNING)
    assert said._timer is not None
    said._timer.join()
    assert capsys.readouterr().out == f"[worker 1] {WARNING}\n"
    said("worker 1", "  pace.step()")  # it came too late to be shown below it, and is not lost
    assert capsys.readouterr().out == "[worker 1]   pace.step()\n"


def test_of_the_heading_of_a_run_of_scripts_checkpoints_and_cores_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    losses = Losses()
    losses.begin(["26 parameters on 1 server", "resumes checkpoint 3", "cores of h1: worker 0 has 0-3"])
    losses.begin(["worker 1 (h1, pid 7) lost"])
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "paceline: resumes checkpoint 3",
        "paceline: cores of h1: worker 0 has 0-3",
        "paceline: worker 1 (h1, pid 7) lost",
    ]
