"""`paceline fuzz`: seeds by number, a violation with the command that plays it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.commands import fuzz
from paceline.cli.main import main
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.scheme import names
from paceline.runtime.fuzzing import seed_runs
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.fuzzing.random_parameters import NEWER
from paceline.sim.kernel.virtual_disk import VirtualDisk
from tests.cli.conftest import Capture, refused_here
from tests.runtime.fuzzing.test_leader_loss import leases_begin_anew
from tests.sim import driver_mutants


def test_so_many_seeds_are_played_from_the_first(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    play = seed_runs.play
    monkeypatch.setattr(seed_runs, "play", lambda plan, **how: (played.append(plan.seed), play(plan, **how))[1])
    assert main(["fuzz", "--seeds", "3", "--first", "7", "--schemes", "bsp,asp", "--defaults"]) == 0
    assert played == [7, 8, 9]
    assert capsys.readouterr().out.splitlines()[-1].startswith("3 seeds")


def test_one_seed_shows_what_it_draws_and_the_same_hash_every_time(capsys: Capture) -> None:
    shown = []
    for _ in range(2):
        assert main(["fuzz", "--seed", "11", "--schemes", "bsp"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert shown[0].startswith("seed 11: ")
    assert "\ncheckpoints: " in shown[0]
    assert "no violation" in shown[0]


def test_the_first_violation_ends_it_with_the_command_that_plays_it_again(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(plan: object, **how: object) -> None:
        raise InvariantBroken("twice")

    monkeypatch.setattr(seed_runs, "play", broken)
    monkeypatch.setattr(fuzz, "play", broken)
    words = ["--schemes", "bsp", "--defaults", "--shrink-seconds", "0"]
    assert main(["fuzz", "--seeds", "5", "--first", "4", *words]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("VIOLATION at seed 4: ")
    assert out[-1] == "again: paceline fuzz --seed 4 --schemes bsp --defaults"
    assert main(["fuzz", "--seed", "4", "--shrink-seconds", "0"]) == 1
    assert "VIOLATION: twice" in capsys.readouterr().out


def test_an_exception_of_a_role_is_a_violation_with_its_stack(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def contribute(self: ClockedServer, now: float, src: int, push: object) -> None:
        raise KeyError("of no worker")

    monkeypatch.setattr(ClockedServer, "_contribute", contribute)
    script = str(tmp_path / "bug.toml")
    for words in (["--seed", "4", "--schemes", "bsp", "--save", script], ["--script", script]):
        assert main(["fuzz", *words, "--transcript"]) == 1
        told = capsys.readouterr()
        assert told.out.count("VIOLATION: KeyError: 'of no worker'") == 2, "in the transcript, and after it"
        assert "in contribute" in told.err


def test_checkpoints_are_fuzzed_with_each_seed(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VirtualDisk, "settle", lambda self, folder: self._call())
    assert main(["fuzz", "--seeds", "60", "--schemes", "bsp", "--defaults"]) == 1
    first, violation, again = capsys.readouterr().out.splitlines()[-3:]
    assert first.startswith("VIOLATION at seed ")
    assert "was saved" in violation
    assert main(["fuzz", *again.split()[3:]]) == 1
    assert violation.partition(": ")[2] in capsys.readouterr().out


def test_a_failure_shrinks_to_a_script_that_fails_again_with_its_transcript(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver_mutants.servers_are_not_told_who_is_gone(monkeypatch)
    script = str(tmp_path / "bug.toml")
    noted = ",".join(name for name in names() if name not in NEWER)  # the seed was found with these
    assert main(["fuzz", "--first", "3", "--seeds", "1", "--schemes", noted, "--save", script]) == 1
    told = capsys.readouterr()
    assert "fault script (nothing more can be dropped after" in told.out
    assert told.out.endswith(f"again: paceline fuzz --script {script} --transcript\n")
    assert "1 tried: 4 workers, 2 servers, 2 faults" in told.err
    assert Path(script).read_text() in told.out
    assert main(["fuzz", "--script", script, "--transcript"]) == 1
    again = capsys.readouterr().out.splitlines()
    assert sum("VIOLATION: gsp, seed 3" in line for line in again) == 2, "in the transcript, and after it with more"
    assert any(" s  membership " in line for line in again)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seed", "1", "--seeds", "2"], "--seconds, --seeds, --seed and --script: give one of them"),
        (["--seed", "1", "--script", "x"], "--seed and --script: give one of them"),
        (["--script", "nowhere.toml"], "--script nowhere.toml: No such file or directory"),
        (["--transcript"], "--transcript is for one run: give --seed or --script"),
        (["--first", "-1"], "--first -1: must be 0 or more"),
        (["--jobs", "0"], "--jobs 0: must be 1 or more"),
        (["--schemes", "bps"], "bps"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words: list[str], told: str, capsys: Capture) -> None:
    assert told in refused_here(capsys, "fuzz", *words)


def test_several_processes_print_what_one_prints(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    driver_mutants.servers_are_not_told_who_is_gone(monkeypatch)
    noted = ",".join(name for name in names() if name not in NEWER)  # the seed was found with these
    printed = []
    for jobs in ("1", "3"):
        words = ["--seeds", "9", "--schemes", noted, "--shrink-seconds", "0", "--jobs", jobs]
        assert main(["fuzz", *words]) == 1
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("VIOLATION at seed 3: ")


def test_a_loss_of_the_leader_shrinks_to_a_script_that_fails_again(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leases_begin_anew(monkeypatch)
    script = str(tmp_path / "bug.toml")
    assert main(["fuzz", "--seeds", "200", "--schemes", "asp,bsp", "--save", script]) == 1
    told = capsys.readouterr()
    assert "the leader is lost: at " in told.out
    assert "fault script (nothing more can be dropped after" in told.out
    assert "[[losses]]" in Path(script).read_text()
    assert main(["fuzz", "--script", script, "--transcript"]) == 1
    again = capsys.readouterr().out.splitlines()
    assert any(" s  LEADER LOST, " in line for line in again)
    assert sum("VIOLATION: " in line for line in again) == 2, "in the transcript, and after it with more"
    monkeypatch.undo()
    assert main(["fuzz", "--script", script]) == 0
    assert capsys.readouterr().out.endswith("\nno violation\n")
