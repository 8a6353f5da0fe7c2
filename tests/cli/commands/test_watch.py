"""`paceline watch` from the outside: a run that is over, over HTTP; and what else schemes would give there."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from paceline.cli.commands.watch import facts_of, settings_of
from paceline.cli.main import main
from paceline.cli.support.scheme_forecast import forecasts_of
from paceline.cli.support.watch_page import hook_words
from paceline.config import build, save
from paceline.core.errors import ConfigError
from paceline.observe.watch.panels.run_progress import RunFacts
from paceline.observe.watch.reader import Measured
from paceline.runtime.run_folder.status_file import StatusFile
from tests.cli.conftest import refused_here
from tests.launch.forked_cli import Warm

SIMULATED = ["simulate", "--scheme", "bsp", "--slowdown", "1,1,1,4", "--step-ms", "20", "--timing-only"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "one"
    assert main([*SIMULATED, "--steps", "40", "--out", str(out)]) == 0
    return out


def test_the_page_of_a_run_is_there_for_who_has_the_token_and_ends_with_ctrl_c(run: Path) -> None:
    command = [sys.executable, "-m", "paceline", "watch", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=\S+", process.stdout.readline())
        assert found
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(found[1])
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        assert b"Who holds whom up" in browser.open(found[0]).read()
        assert b'"scheme":"bsp"' in browser.open(f"{found[1]}/about").read()
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
        process.stdout.close()
    assert code == 0


def test_with_watch_a_run_says_where_its_page_is_and_the_page_goes_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paceline", *SIMULATED, "--steps", "5", "--watch", "--out", str(tmp_path / "r")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)  # until all of them have ended
    assert done.returncode == 0
    assert re.match(r"watch the run at http://127\.0\.0\.1:\d+/\?token=", done.stderr)
    assert "paceline watch" in done.stderr.splitlines()[-1]
    assert (tmp_path / "r" / "summary.json").is_file()


def test_a_port_that_is_taken_is_refused_with_a_way_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused_here(capsys, "watch", str(run), "--port", str(port))
    assert told == f"paceline: --port {port}: Address already in use; leave it out for a free one"


def test_what_is_no_run_is_refused_with_a_way_out(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path)]) == 2
    assert "no trace.jsonl; name the folder of a run" in capsys.readouterr().err
    assert main(["watch", str(run), "--port", "a"]) == 2
    assert "--port a" in capsys.readouterr().err


def measured(*steps_s: float) -> list[Measured]:
    return [
        Measured(rank=rank, device="cpu", step_s=step_s, samples=32.0, exchange_s=0.001)
        for rank, step_s in enumerate(steps_s)
    ]


def test_what_other_schemes_would_give_is_what_such_workers_can() -> None:
    workers = measured(0.02, 0.02, 0.02, 0.08)
    found = {told.scheme: told.rate for told in forecasts_of(workers, {"scheme": "bsp", "servers": 1})}
    assert found["bsp"] == pytest.approx(4 * 32 / 0.081, rel=0.06)
    assert found["asp"] == pytest.approx(3 * 32 / 0.021 + 32 / 0.081, rel=0.06)
    assert found["bsp"] < found["asp"]
    steady = measured(0.02, 0.02, 0.02, 0.02)
    restless = [dataclasses.replace(worker, spread_s=0.01) for worker in steady]
    at_ease, harried = (
        {told.scheme: told.rate for told in forecasts_of(of, {"scheme": "bsp", "servers": 1})}
        for of in (steady, restless)
    )
    assert harried["bsp"] < 0.9 * at_ease["bsp"]
    assert harried["asp"] == pytest.approx(at_ease["asp"], rel=0.1)
    alone = {told.scheme for told in forecasts_of(workers, {"scheme": "localsgd", "servers": 0})}
    assert forecasts_of(workers, {"scheme": "bsp", "servers": 3})
    assert "localsgd" in alone
    assert "asp" not in alone


def test_what_gsp_would_give_is_with_the_groups_that_the_run_has() -> None:
    workers = measured(0.02, 0.08, 0.02, 0.08)

    def under_gsp(of: list[Measured], **parameters: str) -> float:
        told = forecasts_of(of, {"scheme": "bsp", "servers": 1, "parameters": {"gsp": parameters}})
        return next(forecast.rate for forecast in told if forecast.scheme == "gsp")

    alike = 2 * 32 / 0.021 + 2 * 32 / 0.081
    unlike = 4 * 32 / 0.081
    assert under_gsp(workers) == pytest.approx(alike, rel=0.06)
    assert under_gsp(workers, groups="0,2;1,3") == pytest.approx(alike, rel=0.06)
    assert under_gsp(workers, groups="0,1;2,3") == pytest.approx(unlike, rel=0.06)
    assert under_gsp(workers, labels="a*2,b*2") == pytest.approx(unlike, rel=0.06)
    without_1 = 32 / 0.021 + 2 * 32 / 0.081  # worker 0 alone, and 3 still holds 2 up
    assert under_gsp([workers[0], *workers[2:]], groups="0,1;2,3") == pytest.approx(without_1, rel=0.06)


def test_what_tiers_gives_is_with_the_groups_that_the_run_has() -> None:
    """Two workers of 20 ms and two of 80 ms: as many samples as both groups make apart, if each is of one kind."""
    workers = measured(0.02, 0.08, 0.02, 0.08)

    def rate(of: list[Measured], workers_at_start: int = 4, **parameters: str) -> float:
        own = {"inner": "bsp", "outer": "asp", **parameters}
        about = {"scheme": "tiers", "servers": 1, "parameters": {"tiers": own}, "workers": workers_at_start}
        return next(forecast.rate for forecast in forecasts_of(of, about) if forecast.is_own)

    apart, together = rate(workers, groups="0,2;1,3"), rate(workers, groups="0,1;2,3")
    assert apart > 1.5 * together
    assert rate(workers, labels="a,b,a,b") == apart
    # Nobody named groups. The run had them by host, or else two halves of the ranks with which it began.
    by_host = [dataclasses.replace(worker, host=f"host-{worker.rank % 2}") for worker in workers]
    assert rate(by_host) == apart
    assert rate(workers) == together
    without_1 = [workers[0], *workers[2:]]
    assert rate(without_1) == rate(without_1, groups="0,1;2,3")
    assert rate(without_1, 3) == rate(without_1, groups="0,1;2,3")  # rank 3 says that there were four
    assert rate([by_host[0], *by_host[2:]]) == rate(without_1, groups="0,2;1,3")


def test_settings_that_are_not_the_default_are_told_and_where_the_run_ends(tmp_path: Path) -> None:
    config = build(
        {
            "run": {"scheme": "ssp"},
            "optimizer": {"lr": 0.25},
            "cluster": {"workers": 3},
            "ssp": {"staleness": 2},
            "schedule": {"name": "step", "every": 1.0},
            "stop": {"epochs": 2.0},
        }
    )
    told = dict(settings_of(config))
    assert (told["--lr"], told["--workers"], told["--ssp.staleness"], told["--schedule"]) == ("0.25", "3", "2", "step")
    assert not {"--servers", "--out", "--bind"} & set(told)
    save(config, tmp_path / "config.toml")
    simulated = facts_of(tmp_path)
    assert (simulated.samples, simulated.epoch_samples, simulated.learning_rate(99)) == (0, 0, None)
    StatusFile(tmp_path, "ssp", train_samples=100).write("training", at_once=True)
    facts = facts_of(tmp_path)
    assert (facts.samples, facts.epoch_samples) == (200, 100)
    assert [facts.learning_rate(samples) for samples in (0, 99, 100)] == pytest.approx([0.25, 0.25, 0.025])
    assert facts_of(tmp_path / "nowhere") == RunFacts()


@pytest.mark.parametrize(("hook", "why"), [("no-such-program x", "there is no such program"), ("'half", "No closing")])
def test_a_hook_that_cannot_be_called_is_refused_before_anything_is_served(run: Path, hook: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"--alert-hook .*{why}"):
        hook_words(hook)
    assert hook_words("") == []
    assert hook_words(f"{sys.executable} -c 'a b'") == [sys.executable, "-c", "a b"]


def test_alerts_without_a_page_need_somebody_who_hears_of_them(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--no-page goes with --alert-hook CMD" in refused_here(capsys, "watch", str(run), "--no-page")


@pytest.mark.parametrize("verb", ["train", "race", "launch"])
def test_a_hook_that_is_not_there_is_refused_before_anything_runs(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [verb, "--out", str(tmp_path / "r"), "--alert-hook", "/nowhere/at/all"]
    told = refused_here(capsys, *words, *(["paceline", "train"] if verb == "launch" else []))
    assert told == "paceline: --alert-hook /nowhere/at/all: there is no such program"


def test_a_run_that_diverges_at_once_calls_the_hook_of_the_command(warm: Warm, tmp_path: Path) -> None:
    heard = tmp_path / "heard.jsonl"
    words = f"train --scheme bsp --workers 2 --lr 1e9 --seconds 60 --epochs 0 --eval-every 0.1 --out {tmp_path / 'r'}"
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat >> {heard}\n")
    hook.chmod(0o755)
    _, err = warm.paceline(*words.split(), "--alert-hook", str(hook)).communicate(120)
    assert err.startswith(f"alerts of the run go to {hook}\n")
    told = {one["kind"]: one["text"] for one in map(json.loads, heard.read_text().splitlines())}
    assert told.keys() - {"loss"} == {"failed"}  # was it evaluated before it failed? the hooks of both run side by side
    assert "the model has diverged" in told["failed"]
