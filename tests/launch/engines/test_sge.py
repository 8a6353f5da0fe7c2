"""The command lines of Grid Engine."""

from __future__ import annotations

from paceline.launch.engines.sge import GridEngine

AGENT = ["python", "-m", "agent"]


def test_grid_engine_gets_an_array_job_that_is_deleted_by_its_name() -> None:
    one, other = GridEngine(logs="logs", path="/src"), GridEngine(logs="logs")
    command = one.command(4, AGENT)
    assert command[:3] == ["qsub", "-sync", "y"]
    assert command[command.index("-t") + 1] == "1-4"
    assert command[command.index("-v") + 1] == "PYTHONPATH=/src"
    assert one.cancel() == ["qdel", one.job]
    assert one.job != other.job
