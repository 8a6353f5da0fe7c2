"""`paceline launch` of scripts: evaluation beside the training, checkpoints, what is said at once."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import paceline
from paceline.cli.commands import launch as command
from paceline.cli.support.options import with_log_level
from paceline.core.errors import ConfigError
from paceline.launch.local.environment import PREFIX
from tests.launch.local.test_script_launcher import Launch, ended, launch, said  # noqa: F401  a fixture
from tests.launch.process_tree import LIGHT, all_gone, descendants

LOOP = f"""{LIGHT}
import sys, threading, torch, paceline
from torch import nn
from torch.utils.data import TensorDataset
x = torch.randn(120, 3, generator=torch.Generator().manual_seed(1))
model = nn.Linear(3, 2)
optimizer = torch.optim.Adam(model.parameters())
def evaluate(model):
    print("evaluated in", "training" if model.training else "evaluation")
    return {{"accuracy": 0.5, "loss": float(model(x).square().mean())}}
pace = paceline.join(model, optimizer, scheme="asp", evaluate=evaluate)
for batch, _ in pace.batches(TensorDataset(x, x), 10, epochs=20):
    model(batch).square().mean().backward()
    pace.step()
    threading.Event().wait(0.02)
pace.close()
"""
BESIDE = ("-s", "1", "--eval-every", "0.05", "--checkpoint-every", "0.05")


def test_a_run_that_is_killed_goes_on_and_its_samples_are_counted_once(
    launch: Launch,  # noqa: F811
    tmp_path: Path,
) -> None:
    first = launch(LOOP, *BESIDE, joins=False, workers=1)
    checkpoints = tmp_path / "run" / "checkpoints"
    said(first, "[evaluator] evaluated in evaluation")
    while len(list(checkpoints.glob("0*/manifest.json"))) < 2:
        threading.Event().wait(0.02)
    family = [first.pid, *descendants(first.pid)]
    first.kill()
    assert all_gone(family)
    assert not (tmp_path / "run" / "summary.json").exists()
    code, out, err = ended(launch(LOOP, *BESIDE, "--resume", "auto", joins=False, workers=1))
    assert code == 0
    (line,) = err
    assert line.startswith("paceline: resumes checkpoint ")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["samples"] == 20 * 120
    assert summary["test_accuracy"] == 0.5
    assert "accuracy 0.500" in out
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_what_a_script_prints_is_shown_at_once(launch: Launch, tmp_path: Path) -> None:  # noqa: F811
    """Though nobody asks Python for it, and its output is no terminal."""
    lines = f"""
print("here I am", pace.rank)
while not os.path.exists({str(tmp_path / "go on")!r}):
    threading.Event().wait(0.02)
step()
"""
    process = launch(lines, python="-X utf8")
    said(process, "here I am")
    (tmp_path / "go on").touch()
    code, _, err = ended(process)
    assert (code, err) == (0, [])


def test_a_level_of_the_environment_is_that_of_all_parties_unless_a_flag_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"{PREFIX}VERBOSE", "2")
    assert with_log_level({})["run"] == {"verbose": 2}
    assert with_log_level({"run": {"scheme": "asp", "verbose": 0}})["run"]["verbose"] == 0
    assert with_log_level({"run": {"scheme": "asp"}})["run"] == {"scheme": "asp", "verbose": 2}
    monkeypatch.setenv(f"{PREFIX}VERBOSE", "debug")
    with pytest.raises(ConfigError, match=r"PACELINE_VERBOSE=debug: give 0, 1 \(connections\) or 2 \(each message\)"):
        with_log_level({})


def test_checkpoints_are_kept_where_a_flag_needs_them_and_the_command_is_no_value_of_a_flag() -> None:
    kept = [("--store", "redis://127.0.0.1:6379/0/a"), ("--keep-best",)]
    for words in kept:
        options = command._parser().parse_all([*words, "python", "x.py"])
        assert options.command == ["python", "x.py"]
        assert command._values(options, None, ())["checkpoint"]["every"] == 30.0
    options = command._parser().parse_all([*kept[0], "--checkpoint-every", "5", "--keep-best", "python", "x.py"])
    values = command._values(options, None, ())["checkpoint"]
    assert values == {"every": 5.0, "keep_best": True, "store": "redis://127.0.0.1:6379/0/a"}
    assert command._values(command._parser().parse_all(["python", "x.py"]), None, ())["checkpoint"] == {"every": 0.0}


def test_a_hook_that_is_none_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no_such_module"):
        command.main(["-n", "1", "--hook", "no_such_module:on", "--out", str(tmp_path / "run"), "python", "-c", ""])


def test_a_function_that_nobody_will_call_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(f"{PREFIX}COORDINATOR", raising=False)
    model = nn.Linear(2, 2)
    with paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="bsp", evaluate=lambda _: 0.5):
        pass
    assert "start it with `paceline launch --eval-every 5`" in capsys.readouterr().err
