"""What a user reads: help that teaches, and mistakes told in one line before anything is started."""

from __future__ import annotations

import gzip
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from paceline import __version__
from paceline.cli.commands.bench import SUBJECTS
from paceline.cli.main import VERBS, main
from paceline.cli.support import scheme_catalogue
from paceline.cli.support.options import Parser, add_settings, config_of
from paceline.config import settings
from paceline.core.scheme import lookup, names
from paceline.launch.local import launcher
from paceline.launch.local.fork_messages import ForkRequest, ImportTorch
from paceline.runtime.spec import devices
from tests.cli.conftest import Paceline, refused_here

Capture = pytest.CaptureFixture[str]


def refused(run: Paceline, *words: str) -> str:
    """The one line on stderr of a command that is wrong."""
    done = run(*words)
    return one_line(done)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("paceline: ")
    return lines[0]


# ---- help ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--device", "cuda:0"],
        ["train", "--precision", "fp16"],
        ["launch", "--device", "cuda:0", "python", "-c", ""],
    ],
)
def test_a_gpu_where_torch_has_no_cuda_is_refused_before_any_process_is_asked_for_something(
    words: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: False)
    monkeypatch.setattr(launcher.LocalHost, "ask", lambda self, request: asked.append(request))
    asked: list[ForkRequest] = []
    line = refused_here(capsys, *words)
    assert "torch was built without CUDA here" in line
    assert "; give --" in line
    assert all(isinstance(request, ImportTorch) for request in asked)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_before_a_run_has_begun_is_told_in_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.launch.local.launcher.LocalHost.__init__", interrupted)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--scheme", "bsp"]) == 130
    assert capsys.readouterr().err == "paceline: interrupted\n"


def test_a_parameter_of_another_scheme_is_refused_unless_a_phase_may_use_it(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused_here(capsys, "train", "--scheme", "bsp", "--ssp.staleness", "3")
    assert "--ssp.staleness: the scheme is bsp; leave it out, or give --scheme ssp" in line
    assert not list(tmp_path.iterdir())
    parser = Parser(prog="paceline train")
    add_settings(parser)
    for words in (["--scheme", "ssp"], ["--scheme", "hybrid", "--hybrid.phases", "bsp until 1 epochs; ssp"]):
        config = config_of(parser.parse_all([*words, "--ssp.staleness", "3"]))
        assert config.parameters["ssp"] == {"staleness": 3}


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


# ---- mistakes ------------------------------------------------------------------------------------------------


def test_a_wrong_verb_and_option_and_value_start_nothing_and_leave_nothing(
    paceline: Paceline, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "unknown scheme 'bps'; did you mean 'bsp'?" in refused(paceline, "train", "--scheme", "bps")
    monkeypatch.chdir(tmp_path)
    assert "unknown verb 'trian'; did you mean 'train'?" in refused_here(capsys, "trian")
    assert "unknown option --schem; did you mean '--scheme'?" in refused_here(capsys, "train", "--schem", "bsp")
    for former, now in (("--shares", "--partition"), ("--mean", "--allreduce"), ("--begin-with", "--initial-workers")):
        assert f"unknown option {former}; did you mean '{now}'?" in refused_here(capsys, "train", former, "2")
    assert "did you mean 'queue'?" in refused_here(capsys, "train", "--partition", "leased:64")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--workers"], "--workers"),
        (["train", "--workers", "many"], "--workers many: must be a whole number"),
        (["train", "--workers=0"], "between 1 and"),
        (["train", "--lr=-1"], "between 0 and"),
        (["train", "--optimizer", "adan"], "did you mean 'adam'?"),
        (["train", "--slowdown", "1,2"], "--slowdown names 2 workers, --workers says 4"),
        (["train", "--ssp.stalness", "2"], "did you mean '--ssp.staleness'?"),
        (["train", "--scheme", "asp", "--servers", "0"], "give --servers 1 or more"),
        (["train", "--epochs", "0"], "give --epochs, --seconds, --steps or --target-accuracy"),
        (["train", "bsp"], "unexpected argument 'bsp'"),
        (["train", "--config", "nowhere.toml"], "nowhere.toml: No such file"),
        (["train", "--data", "mnist", "--data-dir", "nowhere"], "--data-dir nowhere: no such folder"),
        (["train", "--partition", "fractions:1,2"], "--partition names 2 fractions"),
        (["race", "--schemes", "bsp,aps"], "did you mean 'asp'?"),
        (["race", "--schemes", "bsp,bsp"], "name each scheme once"),
        (["race", "--schemes", ""], "scheme"),
        (["race", "--scheme", "bsp"], "did you mean '--schemes'?"),
        (["race", "--servers", "0"], "give --servers 1 or more"),
        (["launch"], "launch what?"),
        (["launch", "-n", "two", "python"], "--workers two: must be a whole number"),
        (["launch", "--stepms", "3", "python"], "did you mean '--step-ms'?"),
        (["launch", "no-such-program"], "no-such-program"),
        (["schemes", "bps"], "did you mean 'bsp'?"),
        (["cite"], "name"),
        (["cite", "eysnc"], "did you mean 'esync'?"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_the_way_out(
    words: list[str], expected: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in refused_here(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_file_of_settings_is_refused_as_flags_are(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    for text, expected in (
        ("[cluster]\nwrokers = 2\n", "unknown key 'wrokers' in [cluster]; did you mean 'workers'?"),
        ("[cluster\n", "mine.toml"),
        ("[run]\nscheme = 'bps'\n", "did you mean 'bsp'?"),
        ("workers = 2\n", "workers"),
    ):
        path.write_text(text)
        assert expected in refused_here(capsys, "train", "--config", str(path))


def test_a_corrupt_data_file_is_told_in_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    content = gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 10, 28, 28) + bytes(100))
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (data / f"{name}-ubyte.gz").write_bytes(content)
    line = refused_here(capsys, "train", "--data", "mnist", "--data-dir", str(data))
    assert "train-images-idx3-ubyte.gz" in line
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_folder_that_holds_a_run_is_not_written_over(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    for verb in ("train", "race"):
        assert "already holds a run" in refused_here(capsys, verb, "--out", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_a_folder_that_cannot_be_made_is_refused(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in refused_here(capsys, "train", "--out", str(tmp_path / "file"))
    assert "file" in refused_here(capsys, "train", "--out", str(tmp_path / "file" / "run"))


# ---- schemes and cite ----------------------------------------------------------------------------------------


def test_the_table_has_every_scheme_with_its_parameters(paceline: Paceline) -> None:
    done = paceline("schemes")
    assert done.returncode == 0
    for name in names():
        assert done.stdout.count(f"\n  {name} ") == 1
    for words in (lookup("ssp").summary, "Ho et al. 2013", "paceline schemes NAME"):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("family", "members"),
    [
        (scheme_catalogue.TOGETHER, {"bsp", "lbbsp"}),
        (scheme_catalogue.AS_THEY_COME, {"asp", "ssp", "gsp", "ksync"}),
        (scheme_catalogue.LOCALLY, {"esync", "localsgd", "easgd", "eamsgd"}),
        (scheme_catalogue.GOSSIP, {"gosgd", "adpsgd", "sgp"}),
    ],
)
def test_a_scheme_stands_with_those_of_its_kind(family: str, members: set[str]) -> None:
    assert members <= set(scheme_catalogue.families()[family])
    assert sorted(name for family in scheme_catalogue.families().values() for name in family) == names()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("asp", "servers"),
        ("bsp", "servers, or collectives alone (`--servers 0`)"),
        ("localsgd", "collectives (`--servers 0`); where there are servers, they carry the means"),
        ("gosgd", "workers that reach one another; no servers"),
    ],
)
def test_what_a_scheme_runs_on_is_told(name: str, words: str) -> None:
    assert scheme_catalogue.needs(name)["runs on"] == words


@pytest.mark.parametrize("name", names())
def test_the_page_of_a_scheme_has_its_algorithm_parameters_and_paper(name: str, capsys: Capture) -> None:
    assert main(["schemes", name]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^    .*worker [a-z]:", text, re.MULTILINE)  # the box, in the letter of the paper
    assert "Use it" in text
    assert "@" in text
    flags = [s.flag for s in settings() if s.section == name]
    assert all(f"--{flag} " in text for flag in flags)


@pytest.mark.parametrize("name", names())
def test_a_citation_is_one_entry_of_bibtex(name: str, capsys: Capture) -> None:
    assert main(["cite", name]) == 0
    text = capsys.readouterr().out.strip()
    assert text.startswith("@")
    assert text.endswith("}")
    assert text.count("{") == text.count("}")
    for field in ("author", "title", "year"):
        assert f"  {field} = {{" in text


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


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--workers", "2", "--workers", "4"],
        ["train", "--workers=2", "--workers", "4"],
        ["race", "--schemes", "bsp", "--schemes", "asp"],
        ["simulate", "--seed", "1", "--seed", "1"],
    ],
)
def test_an_option_that_is_given_twice_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    name = words[1].partition("=")[0]
    assert capsys.readouterr().err == f"paceline: {name} is given twice: give it once\n"


@pytest.mark.parametrize("verb", ["", *VERBS, *(f"bench {subject}" for subject in SUBJECTS)])
def test_help_fits_eighty_columns(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*verb.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert not [line for line in text.splitlines() if len(line) > 80]
    assert not re.search(r"^ +do not$", text, re.M)
