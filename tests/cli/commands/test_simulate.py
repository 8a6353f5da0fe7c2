"""`paceline simulate` as a user meets it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.observe.runs.summary import read_summary
from tests.cli.conftest import Capture, refused_here

SMALL = ["--workers", "2", "--slowdown", "1,3", "--step-ms", "10", "--model", "mlp", "--width", "0.25"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("drawn")
def test_it_leaves_what_train_leaves(here: Path, capsys: Capture) -> None:
    assert main(["simulate", "--scheme", "esync", *SMALL, "--epochs", "2", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("esync: test accuracy 0.")
    left = out.splitlines()[-1]
    assert left.startswith("left in run: ")
    assert all((here / "run" / name).exists() for name in left.partition(": ")[2].split())
    assert (here / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((here / "run" / "summary.json").read_text())
    assert summary["driver"] == "sim"
    assert [w["slowdown"] for w in summary["workers"]] == [1.0, 3.0]


def test_several_schemes_are_a_race(here: Path, capsys: Capture) -> None:
    options = ["--target-accuracy", "0.5", "--lr", "0.1", "--out", "race"]
    assert main(["simulate", "--schemes", "bsp,asp", *SMALL, *options]) == 0
    assert {path.name for path in (here / "race").iterdir()} == {"bsp", "asp", "race.json", "race.png"}
    assert "asp reached 0.5 in" in capsys.readouterr().out
    assert [s["driver"] for s in json.loads((here / "race" / "race.json").read_text())] == ["sim", "sim"]


def test_the_saved_configuration_gives_the_same_run_again(here: Path) -> None:
    assert main(["simulate", "--scheme", "asp", *SMALL, "--epochs", "1", "--out", "a"]) == 0
    assert main(["simulate", "--config", "a/config.toml", "--out", "b"]) == 0
    assert (here / "a" / "trace.jsonl").read_bytes() == (here / "b" / "trace.jsonl").read_bytes()


def test_a_large_model_needs_no_memory(here: Path) -> None:
    options = ["--cluster", "two-sites", "--parameters", "350000000", "--epochs", "0", "--seconds", "1"]
    assert main(["simulate", "--scheme", "asp", *options, "--out", "run"]) == 0
    summary = json.loads((here / "run" / "summary.json").read_text())
    assert summary["model_length"] == 350_000_000
    assert len(summary["workers"]) == 16
    assert summary["reason"] == "seconds"
    assert summary["seconds"] == 1.0


def test_a_run_is_predicted_from_what_another_one_left(here: Path) -> None:
    assert main(["simulate", "--scheme", "bsp", *SMALL, "--epochs", "1", "--out", "a"]) == 0
    assert main(["simulate", "--scheme", "asp", "--from", "a", "--timing-only", "--epochs", "1", "--out", "b"]) == 0
    first, second = (json.loads((here / name / "summary.json").read_text()) for name in "ab")
    assert first["model_length"] == second["model_length"]
    assert second["samples_per_second"] > 1.5 * first["samples_per_second"]


@pytest.mark.parametrize("verb", [["simulate", "--timing-only"], ["advise", "--schemes", "bsp"]])
@pytest.mark.parametrize("flag", ["--parameters", "--width", "--workers", "--step-ms"])
def test_what_a_run_says_is_not_said_twice(here: Path, capsys: Capture, verb: list[str], flag: str) -> None:
    (here / "a").mkdir()
    (here / "a" / "config.toml").write_text("")
    told = refused_here(capsys, *verb, "--from", "a", flag, "2")
    assert told.endswith(f"{flag}: --from says that already; leave it out")


def test_a_network_without_latency_has_none(here: Path) -> None:
    seconds = []
    for ms in ("0", "0.1"):
        words = ["--timing-only", "--step-ms", "10", "--steps", "100", "--latency-ms", ms, "--out", ms]
        assert main(["simulate", "--scheme", "bsp", *words]) == 0
        seconds.append(json.loads((here / ms / "summary.json").read_text())["seconds"])
    assert seconds[1] - seconds[0] == pytest.approx(100 * 2 * 1e-4, rel=0.05)


def test_a_cluster_whose_workers_all_leave_says_how_the_run_may_end(here: Path, capsys: Capture) -> None:
    cluster = '[[hosts]]\nname = "a"\nleaves_at_s = 5.0\n[[hosts.devices]]\n[[hosts]]\nname = "s"\nservers = 1\n'
    (here / "mine.toml").write_text(cluster)
    assert main(["simulate", "--cluster", "mine.toml", "--timing-only", "--seconds", "9", "--out", "run"]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert "the cluster's last worker was gone after 5." in told
    assert "end the run earlier (--seconds)" in told


def test_pythonhashseed_changes_nothing(here: Path) -> None:
    words = ["simulate", "--scheme", "gsp", "--cluster", "two-generations", "--timing-only", "--epochs", "0.5"]
    assert main([*words, "--out", "a"]) == 0
    command = [sys.executable, "-m", "paceline", *words, "--out", "b"]
    subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "2"}, check=True, timeout=90)
    assert (here / "a" / "trace.jsonl").read_bytes() == (here / "b" / "trace.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cluster", "two-generation"], "did you mean 'two-generations'?"),
        (["--cluster", "nowhere.toml"], "cannot read the cluster file nowhere.toml"),
        (["--cluster", "two-generations", "--workers", "3"], "--workers: --cluster says that already; leave it out"),
        (["--cluster", "two-generations", "--servers", "7"], "--servers 7: the cluster file has 2; 0 is for none"),
        (["--cluster", "two-generations", "--from", "x"], "give one of them"),
        (["--from", "nowhere"], "--from nowhere: no config.toml; name the folder of a run"),
        (["--parameters", "many"], "--parameters many: must be a whole number of at least 1"),
        (["--parameters", "1000"], "with --step-ms or --cluster"),
        (["--parameters", "1000", "--step-ms", "9", "--model", "cnn"], "--model: --parameters says that already"),
        (["--cluster", "two-generations", "--initial-workers", "1"], "--initial-workers: --cluster says that already"),
        (
            ["--scheme", "bsp", "--ssp.staleness", "2"],
            "--ssp.staleness: the scheme is bsp; leave it out, or give --scheme",
        ),
        (["--bandwidth-gbps", "0"], "--bandwidth-gbps 0: must be a number"),
        (["--scheme", "bsp", "--schemes", "bsp,asp"], "--scheme and --schemes: give one of them"),
        (["--schemes", "bsp,apsp"], "unknown scheme 'apsp'; did you mean 'asp'?"),
        (["--timing-only", "--epochs", "0", "--target-accuracy", "0.9"], "--timing-only trains no model"),
        (["--step-ms", "10", "--workers", "100000"], "cannot share"),
        (["--codec", "powersgd"], "--codec powersgd is not simulated"),
    ],
)
def test_mistakes_are_told_in_one_line(here: Path, capsys: Capture, words: list[str], told: str) -> None:
    assert told in refused_here(capsys, "simulate", *words)
    assert not [path for path in here.rglob("*") if path.is_file()]


def test_timing_goes_on_for_the_seconds_that_were_asked_for(here: Path) -> None:
    words = ["simulate", "--timing-only", "--workers", "2", "--step-ms", "100", "--out", "a"]
    assert main([*words, "--seconds", "200"]) == 0
    summary = read_summary(here / "a" / "summary.json")
    assert (summary.reason, summary.seconds) == ("seconds", pytest.approx(200, rel=0.01)), "and not for 20 epochs"


def test_help_teaches_by_examples(capsys: Capture) -> None:
    assert main(["simulate", "--help"]) == 0
    text = capsys.readouterr().out
    for words in ("--cluster FILE|NAME", "two-generations", "--timing-only", "--from RUN", "examples:", "bit for bit"):
        assert words in text


def test_a_language_model_has_a_loss_and_a_perplexity_and_ends_at_a_target_loss(here: Path, capsys: Capture) -> None:
    (here / "a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    words = ["--data", "text", "--data-file", "a.txt", "--context", "16", "--model", "gpt", "--width", "0.25"]
    rest = ["--depth", "1", "--optimizer", "adamw", "--lr", "0.01", "--batch-size", "8", "--target-loss", "4.5"]
    cluster = ["--workers", "2", "--slowdown", "1,2", "--step-ms", "10"]
    assert main(["simulate", "--scheme", "decoupled", *cluster, *words, *rest, "--out", "run"]) == 0
    out, summary = capsys.readouterr().out, read_summary(here / "run" / "summary.json")
    assert "target loss 4.5 reached after" in out
    assert summary.reason == "target loss"
    assert summary.test_accuracy is None
    assert summary.test_loss is not None
    assert summary.test_loss <= 4.5
    assert summary.perplexity == pytest.approx(math.exp(summary.test_loss))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "digits", "--model", "gpt"], "give --data text"),
        (["--data", "text", "--model", "mlp"], "--model mlp takes none: give --model gpt"),
        (["--data", "text", "--model", "gpt", "--data-file", "none.txt"], "--data-file none.txt: No such file"),
    ],
)
def test_what_a_language_model_needs_is_told_in_one_line(
    here: Path, capsys: Capture, words: list[str], told: str
) -> None:
    assert main(["simulate", "--scheme", "bsp", "--workers", "2", "--step-ms", "10", *words])
    error = capsys.readouterr().err.strip()
    assert told in error
    assert len(error.splitlines()) == 1
