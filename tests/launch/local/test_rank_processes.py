"""The processes of one worker's ranks; the command is a shell, which starts at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.launch.local.rank_processes import RankProcesses, main, variables_of
from tests.launch.process_tree import alive, comm, descendants, within

PROGRAM = [sys.executable, "-m", "paceline.launch.local.rank_processes"]


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_each_rank_finds_its_place(tmp_path: Path) -> None:
    script = f'echo "$LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT" > {tmp_path}/$RANK-of-$WORLD_SIZE'
    assert RankProcesses(shell(script), 3, os.environ).wait() == 0
    found = [(tmp_path / f"{rank}-of-3").read_text().split() for rank in range(3)]
    assert [place for place, _ in found] == ["0/3", "1/3", "2/3"]
    assert len({meeting for _, meeting in found}) == 1
    assert found[0][1].startswith("127.0.0.1:")


def test_its_variables_are_those_that_torch_reads() -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    assert variables_of(1, 4, 5000) == dict(zip(names, ("1", "1", "4", "4", "127.0.0.1", "5000"), strict=True))


@pytest.mark.parametrize(("end", "code", "how"), [("exit 3", 3, "exit code 3"), ("kill -KILL $$", 128 + 9, "SIGKILL")])
def test_a_rank_that_fails_takes_the_others_with_it(
    end: str, code: int, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    processes = RankProcesses(shell(f"[ $RANK = 1 ] && {{ {end}; }}; exec sleep 60"), 3, os.environ)
    assert processes.wait() == code
    assert f"rank 1 of 3 of this worker ended with {how}" in capfd.readouterr().err
    assert not [pid for pid in descendants(os.getpid()) if comm(pid) == "sleep" and alive(pid)]


def test_lines_of_ranks_do_not_mix(capfd: pytest.CaptureFixture[str]) -> None:
    assert RankProcesses(shell('printf "%s" $RANK; sleep 0.1; echo " said"'), 3, os.environ).wait() == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["0 said", "1 said", "2 said"]


def test_sigterm_goes_to_the_first_rank_alone(tmp_path: Path) -> None:
    script = f"""trap 'echo $RANK >> {tmp_path}/heard; touch {tmp_path}/over; exit 0' TERM
touch {tmp_path}/ready-$RANK
while [ ! -e {tmp_path}/over ]; do sleep 0.05; done"""
    process = subprocess.Popen([*PROGRAM, "2", *shell(script)])
    assert within(20, lambda: len([*tmp_path.glob("ready-*")]) == 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert (tmp_path / "heard").read_text() == "0\n"


def test_a_command_that_is_none_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["2", "/nowhere/nothing"]) == 127
    assert capsys.readouterr().err == "/nowhere/nothing: No such file or directory\n"
