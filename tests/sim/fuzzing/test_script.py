"""A fault script is a run as text: read back, it is the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.scheme import names
from paceline.sim.fuzzing.fuzz import draw, play
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.script import plan_of, script_of, transcript

SCRIPTS = Path(__file__).with_name("scripts")
SCRIPT = script_of(draw(3, schemes_of(3, ["bsp"])))


def test_whatever_is_drawn_is_read_back_as_it_was() -> None:
    for seed in range(60):
        plan = draw(seed, schemes_of(seed, names()))
        assert plan_of(script_of(plan, about="two\nlines")) == plan


def test_a_script_plays_as_its_seed_does() -> None:
    plan = draw(11, schemes_of(11, names()))
    assert play(plan_of(script_of(plan))) == play(plan)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.toml")), ids=lambda script: script.stem)
def test_scripts_that_once_found_a_bug(script: Path) -> None:
    """Each says in its first line what it found. Before that was mended it failed."""
    play(plan_of(script.read_text()))


def test_only_the_runs_that_it_names_are_made() -> None:
    plan = draw(11, schemes_of(11, names()))
    assert play(replace(plan, runs=("stall",))).events == 0
    assert play(replace(plan, runs=("faults",))).events > 0


def test_the_transcript_has_the_faults_among_what_happens() -> None:
    plan = draw(4, schemes_of(4, ["bsp"]))
    assert plan.cluster.faults
    lines = list(transcript(plan))
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    assert sum("FAULT" in line for line in lines) == len(plan.cluster.faults)
    assert any(" applied " in line for line in lines)
    assert lines[-1].endswith("no violation")


def test_the_transcript_has_what_is_decided_before_the_first_event() -> None:
    plan = plan_of((SCRIPTS / "asks_for_a_closed_mean_at_last.toml").read_text())
    assert "speaks for group 0" in next(line for line in transcript(plan) if " decision " in line)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seed = 3", "seed = 'x'", "needs a seed"),
        ('runs = ["faults"', 'runs = ["nothing"', "runs: give some of"),
        ('scheme = "bsp"', 'scheme = "bps"', "bps"),
        ("samples = [", "samples = [1, ", "samples: give"),
        ("leased = [", "leased = [0, ", "two for leased"),
        ("[cluster]", "[clutter]", "unknown key: clutter"),
        ("[cluster]", "[cluster", "the script: "),
    ],
)
def test_what_is_wrong_is_one_line(old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        plan_of(SCRIPT.replace(old, new, 1))
    assert "\n" not in str(error.value)
