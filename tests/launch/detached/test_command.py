"""The words of a command that is led by another process, and when a unit is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.launch.detached.command import lead_elsewhere, leading_words


def test_the_options_are_taken_out_before_the_command_only() -> None:
    words = ["--detach", "-n", "2", "python", "x.py", "--detach"]
    assert leading_words(words, words[3:]) == ["-n", "2", "python", "x.py", "--detach"]
    assert leading_words(["--write-unit", "a.service", "--seed", "3"]) == ["--seed", "3"]
    assert leading_words(["--write-unit=a.service", "--seed", "3"]) == ["--seed", "3"]
    assert leading_words(["--leader", "h2", "--leader=h3", "--seed", "3"]) == ["--seed", "3"]


def config(out: str, every: float, resume: str = "never") -> Config:
    default = Config()
    return dataclasses.replace(
        default,
        run=dataclasses.replace(default.run, out=out),
        checkpoint=dataclasses.replace(default.checkpoint, every=every, resume=resume),
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (config("", 5.0), "needs --out DIR and --checkpoint-every SECONDS"),
        (config("runs/a", 0.0), "needs --out DIR and --checkpoint-every SECONDS"),
        (config("runs/a", 5.0, "runs/b"), "leave --resume out"),
    ],
)
def test_a_unit_needs_a_folder_and_checkpoints(settings: Config, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        lead_elsewhere("train", [], settings, unit="a.service")


@pytest.mark.parametrize(("resume", "words"), [("never", '"--resume" "auto" "--seed"'), ("auto", '"train" "--seed"')])
def test_the_command_of_a_unit_goes_on_from_checkpoints(
    resume: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lead_elsewhere("train", ["--seed", "3"], config("runs/a", 5.0, resume), unit="a.service") == 0
    assert words in (tmp_path / "a.service").read_text()
    assert (tmp_path / "runs/a").is_dir()
