"""Flags: refused in one line before anything is started."""

from __future__ import annotations

import gzip
import struct
import subprocess
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.cli.support.options import Parser, add_settings, config_of
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
        (["train", "--epochs", "0"], "give --epochs, --seconds, --steps, --target-accuracy or --target-loss"),
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


def test_a_folder_that_holds_a_run_is_not_written_over(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    for verb in ("train", "race"):
        assert "already holds a run" in refused_here(capsys, verb, "--out", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_a_folder_that_cannot_be_made_is_refused(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in refused_here(capsys, "train", "--out", str(tmp_path / "file"))
    assert "file" in refused_here(capsys, "train", "--out", str(tmp_path / "file" / "run"))


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


Capture = pytest.CaptureFixture[str]


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
