"""What a user reads: help of every verb, and wrong verbs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paceline import __version__
from paceline.cli.commands.bench import SUBJECTS
from paceline.cli.main import VERBS, main
from paceline.config import settings
from paceline.core.scheme import names
from tests.cli.conftest import Paceline
from tests.launch.forked_cli import Warm
from tests.launch.process_tree import descendants

Capture = pytest.CaptureFixture[str]


def test_without_a_verb_it_says_which_there_are(paceline: Paceline) -> None:
    done = paceline()
    assert done.returncode == 2
    assert all(f"  {verb} " in done.stdout for verb in VERBS)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_says_what_it_is_for_and_gives_examples(words: list[str], capsys: Capture) -> None:
    assert main(words) == 0
    text = capsys.readouterr().out
    assert all(f"  {verb} " in text for verb in VERBS)
    assert "paceline train --scheme" in text
    assert max(map(len, text.splitlines())) <= 100


def test_an_interrupt_before_a_run_has_begun_is_told_in_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.launch.local.launcher.LocalHost.__init__", interrupted)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--scheme", "bsp"]) == 130
    assert capsys.readouterr().err == "paceline: interrupted\n"


def test_it_tells_its_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"paceline {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_teaches(verb: str, capsys: Capture) -> None:
    assert main([verb, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"usage: paceline {verb}")
    assert f"paceline {verb}" in out.partition("\n\n")[2]
    assert max(map(len, out.splitlines())) <= 120


def test_help_and_mistakes_do_not_wait_for_torch() -> None:
    lines = """
import sys
from paceline.cli.main import VERBS, main
for verb in VERBS:
    assert main([verb, "--help"]) == 0
for verb in ("train", "race", "simulate", "advise", "launch"):
    assert main([verb, "--lr", "many"]) == 2
print("torch" in sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "False", done.stderr


HEAVY = {"torch", "numpy", "matplotlib", "numba", "rich", "scipy", "sklearn", "cryptography", "psutil"}
"""Packages of which each takes a good part of the time that a short command has."""


def test_verbs_that_only_print_import_no_heavy_package(warm: Warm, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    _, said = (made := warm.paceline("train", "--workers", "1", "--steps", "1", "--out", run)).communicate(60)
    assert made.returncode == 0, said
    for words in (["--help"], ["--version"], ["status", run], ["schemes"], ["schemes", "asp"]):
        script = f"import sys; from paceline.cli.main import main; assert main({words!r}) == 0; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        imported = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
        assert "paceline" in imported
        assert imported & HEAVY == set(), words


def test_a_mistake_or_a_needless_verb_leaves_no_process() -> None:
    before = set(descendants(os.getpid()))
    assert main(["train", "--lr", "many"]) == 2
    assert main(["race", "--schemes", "none"]) == 2
    assert main(["train", "--help"]) == 0
    assert set(descendants(os.getpid())) <= before


def test_whoever_trains_nothing_itself_goes_without_torch(tmp_path: Path) -> None:
    lines = """
import sys
for heavy in ("torch", "sklearn", "scipy"):
    sys.modules[heavy] = None  # importing it is an error from here on
from paceline.cli.main import main
run = ["train", "--scheme", "asp", "--workers", "1", "--checkpoint-every", "0.1"]
for words in (
    [*run, "--epochs", "1", "--out", "run"],  # its server is kept on disk, from where it would be replaced
    [*run, "--epochs", "2", "--out", "run", "--resume", "auto"],
    *[[verb, "run"] for verb in ("status", "logs", "summary")],
    ["checkpoint", "verify", "run"],
):
    assert main(words) == 0, words
assert main(["kill", "run"]) == 2
"""
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "resumes checkpoint" in done.stderr


@pytest.mark.parametrize("verb", ["train", "race"])
def test_help_has_every_setting_and_says_where_those_of_schemes_are(verb: str, capsys: Capture) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert [s.flag for s in settings() if s.section not in names() and f"--{s.flag}" not in text] == []
    assert "paceline schemes NAME" in text
    assert "examples:" in text


@pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_a_reader_that_closes_the_pipe_early_causes_no_error_message(variables: dict[str, str]) -> None:
    command = f"{sys.executable} -m paceline schemes ssp | true; exit ${{PIPESTATUS[0]}}"
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **variables}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 1
    assert done.stderr == ""


def test_output_that_cannot_be_written_is_one_line_and_exit_code_1() -> None:
    command = f"{sys.executable} -m paceline schemes > /dev/full"
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 1
    assert done.stderr == "paceline: standard output: No space left on device\n"


@pytest.mark.parametrize("verb", ["", *VERBS, *(f"bench {subject}" for subject in SUBJECTS)])
def test_help_fits_eighty_columns(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*verb.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert not [line for line in text.splitlines() if len(line) > 80]
    assert not re.search(r"^ +do not$", text, re.M)


@pytest.mark.parametrize("verb", ["train", "launch", "simulate"])
def test_a_run_in_a_folder_that_was_deleted_is_refused(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main([verb, "--out", str(tmp_path / "run"), "python", "train.py"]) == 2
    assert capsys.readouterr().err == "paceline: the current folder was deleted: change to one that exists\n"
    monkeypatch.undo()
