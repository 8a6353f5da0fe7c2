"""The command line of torchrun."""

from __future__ import annotations

import sys

from paceline.launch.engines.torchrun import Torchrun


def test_it_starts_an_agent_for_each_worker_on_this_machine_and_restarts_none() -> None:
    command = Torchrun(extra=("--log-dir", "logs")).command(3, ["python", "-m", "agent"])
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert {"--standalone", "--nproc-per-node=3", "--max-restarts=0", "--no-python"} <= set(command)
    assert command[-5:] == ["--log-dir", "logs", "python", "-m", "agent"]


def test_there_is_no_command_that_ends_it_but_the_end_of_its_process() -> None:
    assert Torchrun().cancel() == []
