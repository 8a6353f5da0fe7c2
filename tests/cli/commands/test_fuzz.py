"""`paceline fuzz`: seeds by number, a violation with the command that plays it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.commands import fuzz
from paceline.cli.main import main
from paceline.sim.checking.invariants import InvariantBroken
from tests.cli.conftest import Capture, refused_here
from tests.sim import driver_mutants


def test_so_many_seeds_are_played_from_the_first(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    play = fuzz.play
    monkeypatch.setattr(fuzz, "play", lambda plan: (played.append(plan.seed), play(plan))[1])
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
    assert "no violation" in shown[0]


def test_the_first_violation_ends_it_with_the_command_that_plays_it_again(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(plan: object) -> None:
        raise InvariantBroken("twice")

    monkeypatch.setattr(fuzz, "play", broken)
    words = ["--schemes", "bsp", "--defaults", "--shrink-seconds", "0"]
    assert main(["fuzz", "--seeds", "5", "--first", "4", *words]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("VIOLATION at seed 4: ")
    assert out[-1] == "again: paceline fuzz --seed 4 --schemes bsp --defaults"
    assert main(["fuzz", "--seed", "4", "--shrink-seconds", "0"]) == 1
    assert "VIOLATION: twice" in capsys.readouterr().out


def test_a_failure_shrinks_to_a_script_that_fails_again_with_its_transcript(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver_mutants.servers_are_not_told_who_is_gone(monkeypatch)
    script = str(tmp_path / "bug.toml")
    assert main(["fuzz", "--first", "3", "--seeds", "1", "--save", script]) == 1
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
        (["--schemes", "bps"], "bps"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words: list[str], told: str, capsys: Capture) -> None:
    assert told in refused_here(capsys, "fuzz", *words)
