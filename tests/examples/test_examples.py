"""Every numbered example runs as its first lines say, and prints what they promise.

The first two and those of the frameworks are started as users start them, each with all of torch of its own; the second
one also as two workers of `paceline launch`. Other examples and commands are forked from a process that has torch.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.forked_cli import Warm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*command: str, folder: Path) -> str:
    """What the command prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def forked(warm: Warm, *words: str, folder: Path) -> str:
    """What `python WORDS...` prints, or `paceline WORDS...`."""
    script = Path(words[0])
    command = warm.python(script, *words[1:], folder=folder) if script.suffix else warm.paceline(*words, folder=folder)
    out, err = command.communicate(120)
    assert command.returncode == 0, err
    assert "Traceback" not in err
    assert "Warning" not in err
    return out


def test_one_call(tmp_path: Path) -> None:
    out = run(str(EXAMPLES / "01_one_call.py"), "run", folder=tmp_path)
    found = re.match(r"esync: (0\.\d+) after (\d+\.\d) s\n", out)
    assert found
    steps = [int(text) for text in re.findall(r"times slower: (\d+) steps", out)]
    assert len(steps) == 4
    assert min(steps) > 0  # how many, and who makes more than the slowest, depends on what else this machine does
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["reason"] == "target accuracy"
    assert summary["seconds_to_target"] <= summary["seconds"]
    assert float(found[1]) == pytest.approx(summary["test_accuracy"], abs=5e-4)
    assert float(found[1]) >= 0.9
    trace = map(json.loads, (tmp_path / "run" / "trace.jsonl").read_text().splitlines())
    looked = [row for row in trace if row["kind"] == "evaluated"]
    assert max(row["accuracy"] for row in looked) >= 0.9


def test_own_loop_alone(tmp_path: Path) -> None:
    out = run(str(EXAMPLES / "02_own_loop.py"), folder=tmp_path)
    found = re.fullmatch(r"worker 0 of 1: 570 steps, accuracy (0\.\d+)\n", out)
    assert found, out
    assert float(found[1]) > 0.95
    assert list(tmp_path.iterdir()) == []


def test_a_language_model_with_groups_alone(warm: Warm, tmp_path: Path) -> None:
    out = forked(warm, str(EXAMPLES / "05_language_model.py"), folder=tmp_path)
    found = re.fullmatch(r"worker 0 of 1: 31 steps, loss (\d+\.\d+)\n", out)
    assert found, out
    assert float(found[1]) < 3.0, "of 64 letters alike it is 4.16"


def test_own_loop_as_two_workers(tmp_path: Path) -> None:
    example = str(EXAMPLES / "02_own_loop.py")
    out = run("-m", "paceline", "launch", "-n", "2", "-s", "1", sys.executable, example, folder=tmp_path)
    found = re.findall(r"\[worker (\d)\] worker \1 of 2: (\d+) steps, accuracy (0\.\d+)\n", out)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"]
    assert sum(int(steps) for _, steps, _ in found) == 570  # 57 batches in each of 10 epochs, whoever trained them
    assert found[0][2] == found[1][2]  # both end with the final model
    assert float(found[0][2]) > 0.85
    assert "esync:" in out


def test_workers_of_several_devices_end_with_one_model(warm: Warm, tmp_path: Path) -> None:
    words = ["launch", "-n", "2", "--ranks", "2", "-s", "1", sys.executable, str(EXAMPLES / "15_several_devices.py")]
    out = forked(warm, *words, folder=tmp_path)
    found = re.findall(r"\[worker (\d)\] worker \1 of 2: (\d+) steps, loss (\d\.\d+) on unseen text\n", out)
    assert sorted(found) == [("0", "235", found[0][2]), ("1", "235", found[0][2])]
    assert float(found[0][2]) < 3.25, "of 32 tokens alike it is 3.47"


def test_embedding_alone(warm: Warm, tmp_path: Path) -> None:
    out = forked(warm, str(EXAMPLES / "03_embedding.py"), folder=tmp_path)
    found = re.fullmatch(r"worker 0 of 1: 800 steps, accuracy ([01]\.\d+)\n", out)
    assert found, out
    assert float(found[1]) > 0.9


def test_embedding_as_two_workers_sends_rows(warm: Warm, tmp_path: Path) -> None:
    example = str(EXAMPLES / "03_embedding.py")
    out = forked(warm, "launch", "-n", "2", "-s", "1", "--out", "run", sys.executable, example, folder=tmp_path)
    found = re.findall(r"\[worker (\d)\] worker \1 of 2: (\d+) steps, accuracy ([01]\.\d+)\n", out)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"]
    assert sum(int(steps) for _, steps, _ in found) == 800
    assert found[0][2] == found[1][2]
    assert float(found[0][2]) > 0.9
    whole, batch = 4 * 20_000 * 16, 160 * (4 * 16 + 4)
    sent = json.loads((tmp_path / "run" / "summary.json").read_text())["bytes_up"]
    assert sent < 800 * (batch + 1000) + 3 * whole < 800 * whole / 50


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_numbered_tested_and_says_how_to_run_it(example: Path) -> None:
    assert re.match(r"\d\d_", example.name)
    assert example.name in Path(__file__).read_text()
    assert f"python examples/{example.name}" in example.read_text().partition("import")[0]


def test_kvstore_alone_and_as_two_workers(warm: Warm, tmp_path: Path) -> None:
    example = str(EXAMPLES / "04_kvstore.py")
    assert forked(warm, example, folder=tmp_path) == "worker 0 of 1: slope 3.00, offset -1.00\n"
    out = forked(warm, "launch", "-n", "2", "-s", "2", sys.executable, example, folder=tmp_path)
    found = re.findall(r"\[worker (\d)\] worker \1 of 2: slope 3.00, offset -1.00\n", out)
    assert sorted(found) == ["0", "1"]


def test_images_end_with_a_report_of_each_epoch(warm: Warm, tmp_path: Path) -> None:
    example = str(EXAMPLES / "06_images.py")
    out = forked(warm, "launch", "-n", "2", "-s", "1", sys.executable, example, folder=tmp_path)
    reported = [float(text) for text in re.findall(r"\[worker 0\] epoch \d: accuracy (0\.\d+)\n", out)]
    assert len(reported) == 5
    assert reported[-1] > max(0.6, reported[0])
    assert f"accuracy {reported[-1]:.3f}" in out.split("esync:")[1]


def test_adapters_alone_are_trained(warm: Warm, tmp_path: Path) -> None:
    found = re.fullmatch(
        r"worker 0 of 1: 3.8% of the model trained, accuracy (0\.\d+)\n",
        forked(warm, str(EXAMPLES / "07_lora.py"), folder=tmp_path),
    )
    assert found
    assert float(found[1]) > 0.9


def test_a_recurrent_network_learns_from_words_of_unlike_lengths(warm: Warm, tmp_path: Path) -> None:
    found = re.fullmatch(
        r"worker 0 of 1: 504 steps, accuracy ([01]\.\d+)\n",
        forked(warm, str(EXAMPLES / "08_recurrent.py"), folder=tmp_path),
    )
    assert found
    assert float(found[1]) > 0.95, "a guess has 0.17"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("0*.py")), ids=lambda path: path.name)
def test_examples_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 80


def test_a_gan_makes_points_of_the_ring_it_was_shown(warm: Warm, tmp_path: Path) -> None:
    out = forked(warm, str(EXAMPLES / "09_gan.py"), folder=tmp_path)
    found = re.fullmatch(r"worker 0 of 1: made points lie (\d\.\d+) from the middle, the ring 1.00\n", out)
    assert found, out
    assert float(found[1]) == pytest.approx(1.0, abs=0.2), "those of an untrained model lie 0.1 from it"


def test_a_stream_is_trained_to_its_end(warm: Warm, tmp_path: Path) -> None:
    found = re.fullmatch(
        r"worker 0 of 1: 269 steps, loss (\d\.\d+)\n", forked(warm, str(EXAMPLES / "10_stream.py"), folder=tmp_path)
    )
    assert found
    assert float(found[1]) < 0.5, "of 27 letters alike it is 3.3"


def test_a_run_that_was_ended_goes_on(warm: Warm, tmp_path: Path) -> None:
    """The second command ends the run of the first, which was stopped in the middle, with as many steps as one run."""
    example = str(EXAMPLES / "11_resume.py")
    command = ["launch", "-n", "1", "-s", "1", "--checkpoint-every", "0.3", "--out", "mine"]
    forked(warm, *command, "--samples", "9600", sys.executable, example, folder=tmp_path)
    out = forked(warm, *command, "--resume", "auto", sys.executable, example, folder=tmp_path)
    assert "bsp:" in out
    steps = int(re.findall(r"worker 0 of 1: (\d+) steps", out)[0])
    assert steps in (940, 941), "those of 20 epochs; the mini-batch at which the first run ended may be in two parts"
    assert json.loads((tmp_path / "mine" / "summary.json").read_text())["samples"] == 30_000


def test_lightning_shares_the_epochs_by_speed_and_worker_0_reports(warm: Warm, tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed: pip install 'paceline[integrations]'")
    command = ["launch", "-n", "2", "-s", "1", "--slowdown", "1,4", "--step-ms", "20", "--out", "run"]
    forked(warm, *command, sys.executable, "-W", "ignore", str(EXAMPLES / "12_lightning.py"), folder=tmp_path)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    fast, slow = (worker["steps"] for worker in summary["workers"])
    assert fast > 1.5 * slow
    assert summary["samples"] == 3 * 1500
    assert summary["test_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("example", "said"),
    [("13_trainer.py", r"loss (0\.\d+)"), ("14_accelerate.py", r"accuracy 0\.[6-9]\d*")],
    ids=["trainer", "accelerate"],
)
def test_a_frameworks_loop_trains_alone(example: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'paceline[integrations]'")
    assert re.search(said, run("-W", "ignore", str(EXAMPLES / example), folder=tmp_path))


@pytest.mark.parametrize("example", ["17_sft.py", "18_peft.py"])
def test_adapters_are_trained_by_two_unlike_workers_and_load_in_plain_peft(example: str, tmp_path: Path) -> None:
    for name in ("peft", "trl", "datasets"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'paceline[adapters]'")
    script = [sys.executable, "-W", "ignore", str(EXAMPLES / example)]
    unlike = ["--slowdown", "1,2.5", "--step-ms", "20", "--batch-limits", "32,8", "--out", "run"]
    out = run("-m", "paceline", "launch", "-n", "2", "-s", "1", *unlike, *script, folder=tmp_path)
    found = re.search(r"loss (\S+), of the saved adapters in plain PEFT (\S+)\n", out)
    assert found, out
    assert found[1] == found[2]
    assert float(found[1]) < 1.5, "of 48 words alike it is 3.9"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert all(worker["steps"] for worker in summary["workers"])


def test_timms_loop_trains_alone(tmp_path: Path) -> None:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install 'paceline[timm]'")
    assert re.search(r"accuracy 0\.[5-9]\d*", run("-W", "ignore", str(EXAMPLES / "16_timm.py"), folder=tmp_path))


def test_a_model_of_theano_mpis_contract_under_two_rules(warm: Warm, tmp_path: Path) -> None:
    for rule, steps in (("BSP", r"0: 66, 1: 66"), ("EASGD", r"0: \d+, 1: \d+")):
        (tmp_path / rule).mkdir()
        out = forked(warm, str(EXAMPLES / "theanompi" / "own_model.py"), rule, folder=tmp_path / rule)
        assert re.search(rf"{rule.lower()}: .* accuracy 0\.[5-9]\d*; steps by worker: {steps}\n", out), out
        assert (tmp_path / rule / "inforec" / "val_info.npy").exists()


def test_a_model_of_keras_under_theano_mpis_contract(warm: Warm, tmp_path: Path) -> None:
    if importlib.util.find_spec("keras") is None:  # importing it would look for TensorFlow
        pytest.skip("keras is not installed (paceline[keras])")
    out = forked(warm, str(EXAMPLES / "theanompi" / "keras_model.py"), folder=tmp_path)
    assert re.search(r"localsgd: .* steps by worker: 0: 66, 1: 66\n", out), out
    assert "trained with Keras" in out
