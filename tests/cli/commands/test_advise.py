"""`paceline advise` as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import main
from tests.cli.conftest import Capture, refused_here


def test_it_ranks_by_pace_and_says_what_it_cannot_know(capsys: Capture) -> None:
    assert main(["advise", "--schemes", "bsp,asp,esync", "--slowdown", "1,1,2,8", "--step-ms", "20"]) == 0
    out = capsys.readouterr().out
    ranked = [line.split()[0] for line in out.splitlines()[1:4]]
    assert set(ranked[:2]) == {"asp", "esync"}
    assert ranked[2] == "bsp"
    assert "Without risk: bsp" in out
    assert "Faster (late): asp" in out
    assert "What this cannot know:" in out
    assert max(map(len, out.splitlines())) <= 120


def test_with_a_target_it_trains_and_goes_by_the_time_to_it(capsys: Capture) -> None:
    options = ["--slowdown", "1,1,2,8", "--step-ms", "20", "--target-accuracy", "0.6", "--lr", "0.1"]
    assert main(["advise", "--schemes", "bsp,asp", *options]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[1:3] == ["to", "target"]
    assert out.splitlines()[1].startswith("asp")
    assert "one seed" in out


def test_a_scheme_that_does_not_fit_is_left_out_with_the_reason(capsys: Capture) -> None:
    assert main(["advise", "--schemes", "bsp,asp", "--servers", "0", "--step-ms", "20"]) == 0
    out = capsys.readouterr().out
    assert "Left out:" in out
    assert "asp: asp keeps its model on servers: give --servers 1 or more" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--schemes", "asp", "--servers", "0"], "asp keeps its model on servers"),
        (["--schemes", "bsp,bsp"], "name each scheme once"),
        (["--target-accuracy", "0.9", "--parameters", "5"], "--target-accuracy trains --model"),
        (["--cluster", "nowhere"], "no cluster file and no ready cluster is called 'nowhere'"),
        (["--scheme", "bsp"], "unknown option --scheme; did you mean '--schemes'?"),
    ],
)
def test_mistakes_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["advise", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in [line for line in err.splitlines() if not line.startswith("[")][-1]


def test_a_wrong_flag_starts_nothing(capsys: Capture) -> None:
    assert "did you mean" in refused_here(capsys, "advise", "--slowdwn", "1,2")
