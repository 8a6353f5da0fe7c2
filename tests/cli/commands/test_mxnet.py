"""`paceline mxnet`: command lines of MXNet's users, run as they are."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest
import torch

from paceline.cli.main import main
from paceline.engine.data import digits
from tests.launch.forked_cli import Warm

Capture = pytest.CaptureFixture[str]


def write_mnist(folder: Path) -> None:
    """Writes the digits that come with Paceline as MNIST's four files."""
    folder.mkdir()
    splits = digits.load()
    for name, part in (("train", splits.train), ("t10k", splits.test)):
        x = torch.nn.functional.interpolate(part.x - part.x.min(), (28, 28), mode="nearest")
        pixels = (x / x.max() * 255).round().byte().numpy()
        for what, header, data in (
            ("images-idx3", (2051, len(pixels), 28, 28), pixels),
            ("labels-idx1", (2049, len(pixels)), part.y.byte().numpy()),
        ):
            with gzip.open(folder / f"{name}-{what}-ubyte.gz", "wb", compresslevel=1) as file:
                file.write(struct.pack(f">{len(header)}I", *header) + data.tobytes())


def test_an_invocation_of_mxnets_users_trains_unchanged_and_ends_well(tmp_path: Path, warm: Warm) -> None:
    """A line of MXNet's README, with the folder of MNIST's files and that of the result."""
    write_mnist(tmp_path / "data")
    line = (
        "../../tools/launch.py -n 2 -s 2 --launcher local python train_mnist.py --network mlp --kv-store dist_sync "
        "--batch-size 32 --num-epochs 4 --lr 0.05 --lr-step-epochs 3 --disp-batches 10"
    )
    folders = ["--data-dir", str(tmp_path / "data"), "--model-prefix", str(tmp_path / "out")]
    command = warm.paceline("mxnet", *line.split(), *folders)
    out, err = command.communicate(timeout=100)
    assert command.returncode == 0, err
    assert "paceline: the same as: paceline train --scheme bsp --workers 2 --servers 2" in err
    assert "paceline: without effect: --disp-batches" in err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["test_accuracy"] > 0.85
    assert "bsp: test accuracy" in out
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_what_is_not_rebuilt_ends_in_one_line(capsys: Capture) -> None:
    assert main(["mxnet", "python", "train_mnist.py", "--network", "lenet", "--add_stn"]) == 2
    _, err = capsys.readouterr()
    assert err.startswith("paceline: --add_stn is not rebuilt")
    assert err.count("\n") == 1


def test_help_shows_original_lines(capsys: Capture) -> None:
    assert main(["mxnet", "--help"]) == 0
    assert "launch.py -n 2 -s 2 --launcher local python train_mnist.py" in " ".join(capsys.readouterr().out.split())
