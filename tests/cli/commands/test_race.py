"""`paceline race -- python train.py`: the command says the scheme, and compares what the script reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from paceline import config as configuration
from paceline.cli.commands.race import configured, main, tell_defaults, with_race_end
from paceline.cli.support.run_and_report import RunInterrupted, run
from paceline.cli.support.script_runs import HostRun, SshHosts, split_command
from paceline.core.errors import ConfigError
from tests.launch.forked_cli import Warm
from tests.launch.process_tree import LIGHT

SCRIPT = f"""{LIGHT}
import torch, paceline
from torch import nn
from torch.utils.data import TensorDataset
model = nn.Linear(3, 2)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="asp", weighting="inverse")
data = TensorDataset(torch.randn(60, 3), torch.zeros(60))
for x, _ in pace.batches(data, batch_size=5, epochs=50):
    model(x).square().sum().backward()
    pace.step()
    if pace.rank == 0:
        pace.report(loss=3.5)
pace.close()
"""


def test_each_run_has_the_scheme_of_the_command_and_all_end_by_its_rule(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    out = tmp_path / "race"
    words = ["race", "--schemes", "asp,ssp", "--ssp.staleness", "2", "--workers", "1", "--samples", "120"]
    process = warm.paceline(*words, "--out", str(out), "--", sys.executable, str(tmp_path / "train.py"))
    shown, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    summaries = json.loads((out / "race.json").read_text())
    assert [(s["scheme"], s["samples"], s["test_accuracy"], s["test_loss"]) for s in summaries] == [
        ("asp", 120, None, 3.5),
        ("ssp", 120, None, 3.5),
    ]
    assert [s["parameters"]["weighting"] for s in summaries] == ["inverse", "none"]  # the script's, for its own scheme
    assert summaries[1]["parameters"]["staleness"] == 2
    assert (summaries[0]["model"], summaries[0]["data"]) == ("train.py", "")
    assert shown.splitlines()[0].split()[3] == "loss"
    assert "ended with the lowest loss, 3.5," in shown
    assert "epoch" not in said  # nobody knows here how long one is
    line = "the command says --scheme ssp, so scheme='asp' of join is not used"
    assert line in (out / "ssp" / "logs" / "worker-0.log").read_text()
    assert not (out / "asp" / "logs" / "worker-0.log").exists()  # it is the script's own
    assert (out / "race.png").exists()


def test_a_script_is_evaluated_beside_its_training_where_the_command_says_how_often(warm: Warm, tmp_path: Path) -> None:
    given = SCRIPT.replace('weighting="inverse")', "evaluate=lambda model: 0.75)").replace("epochs=50", "epochs=None")
    (tmp_path / "train.py").write_text(given.replace("pace.rank == 0", "False"))
    words = ["race", "--schemes", "asp", "--workers", "1", "--eval-every", "0.05", "--target-accuracy", "0.7"]
    process = warm.paceline(*words, "--out", str(tmp_path / "race"), "--", sys.executable, str(tmp_path / "train.py"))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    summary = json.loads((tmp_path / "race" / "race.json").read_text())[0]
    assert (summary["test_accuracy"], summary["reason"]) == (0.75, "target accuracy")
    assert not (tmp_path / "race" / "asp" / "checkpoints").exists()


def test_the_command_stands_behind_two_dashes() -> None:
    assert split_command(["--schemes", "bsp"]) == (["--schemes", "bsp"], [])
    assert split_command(["-x", "--", sys.executable, "a.py", "--", "b"]) == (
        ["-x"],
        [sys.executable, "a.py", "--", "b"],
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["python", "train.py"], "unexpected argument 'python'.*your own script stands behind --, as in -- python"),
        (["--"], "-- stands before the command of a script, such as -- python train.py"),
        (["--", "paceline", "train"], "-- stands before your own script; `paceline` has no place there"),
        (["--", "no-such-program"], "no-such-program: no such program"),
        (["--", "python", "-u", "missing.py", "--lr", "1"], "missing.py: no such file in"),
        (["--lr", "0.1", "--", sys.executable, "x.py"], "--lr: your script says that itself"),
        (["--data", "digits", "--", sys.executable, "x.py"], "--data: your script says that itself"),
        (["--sync-dir", "x", "--", sys.executable, "x.py"], "--sync-dir is for other machines: name them with --hosts"),
        (["--hosts", "nowhere", "--", "python", "x.py"], "--hosts nowhere: No such file"),
        (["--hosts", "nowhere"], "--hosts is for your own script: add -- python train.py"),
        (["--schemes", "bspp", "--", sys.executable, "x.py"], "unknown scheme 'bspp'; did you mean 'bsp'"),
        (["--schemes", "asp", "--servers", "0", "--", sys.executable, "x.py"], "asp keeps its model on servers"),
        (["--script", "x.py"], "--script x.py: start your own script with `paceline launch` or `race`"),
    ],
)
def test_what_cannot_be_raced_is_refused_before_anything_starts(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.py").touch()
    with pytest.raises(ConfigError, match=says):
        main([*words, "--out", str(tmp_path / "race")] if "--" not in words else ["--out", str(tmp_path), *words])


def test_ctrl_c_while_hosts_are_reached_ends_the_race_with_what_there_is(tmp_path: Path) -> None:
    config = configuration.build({"run": {"out": str(tmp_path)}})
    started: list[str] = []

    class Reached:
        @contextlib.contextmanager
        def launcher(self, *_: Any, **__: Any) -> Iterator[None]:
            started.append("reaching")
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
            yield

    one = HostRun(cast(SshHosts, Reached()), ["python", "x.py"], config)
    with pytest.raises(RunInterrupted) as ended:
        run(one)
    assert (started, ended.value.exit_code, ended.value.summary, one.left) == (["reaching"], 130, None, {})


# ---- how a race ends ------------------------------------------------------------------------------------------
TEXT: dict[str, Any] = {"data": {"name": "text"}, "cluster": {"slowdown": [1, 1, 2, 8]}}


def told(values: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[str]:
    tell_defaults(values, configured(with_race_end(values), "bsp"))
    return capsys.readouterr().err.splitlines()


def test_each_run_has_the_same_end_and_a_scheme_of_its_own() -> None:
    values = with_race_end(TEXT)
    configs = [configured(values, name) for name in ("bsp", "diloco")]
    assert [config.run.scheme for config in configs] == ["bsp", "diloco"]
    assert configs[0].stop == configs[1].stop
    assert (configs[0].stop.target_loss, configs[0].stop.target_accuracy, configs[0].stop.epochs) == (3.2, 0.0, 1.0)
    assert "stop" not in TEXT  # what was given stays as it is


def test_an_end_that_was_given_stays() -> None:
    assert with_race_end({**TEXT, "stop": {"seconds": 5.0}})["stop"] == {"seconds": 5.0}


def test_defaults_are_told_before_the_first_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(TEXT, capsys) == [
        "each run ends at test loss 3.2 (--target-loss) or 1 epoch (--epochs): the default for text",
        "a step lasts 100 ms (--step-ms) times --slowdown: the default for gpt",
    ]
    assert told({"stop": {"epochs": 1.0}, "cluster": {"step_ms": 5.0}}, capsys) == []
