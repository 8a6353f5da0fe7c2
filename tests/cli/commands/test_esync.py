"""`paceline esync`: a command line of ESync's main.py, unchanged behind the first two words."""

from __future__ import annotations

import json
import shlex
import struct
from pathlib import Path

import numpy as np
import pytest

from paceline.cli.main import main
from paceline.observe.runs.summary import read_summary

COMMAND = (
    "python main.py -g 0 -c 1 -m esync -n resnet18-v1 -ll 0.0005 -gl 1.0 -b 16 -e 1 -s 0 -dd {data} -ld {logs} "
    "-ip 10.1.1.34"
)
OURS = "--workers 2 --slowdown 1,4 --step-ms 4 --width 0.05 --epochs 6 --out {out}"


def idx(path: Path, array: np.ndarray) -> None:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(head + array.astype(np.uint8).tobytes())


def fashion_mnist(folder: Path, samples: int = 192) -> None:
    """Ten classes, each a bright bar at a place of its own."""
    folder.mkdir(parents=True)
    for name, count in (("train", samples), ("t10k", samples // 2)):
        labels = np.arange(count) % 10
        pictures = np.random.RandomState(count).randint(0, 40, (count, 28, 28))
        for picture, label in zip(pictures, labels, strict=True):
            picture[2 * label + 4 : 2 * label + 8] += 180
        idx(folder / f"{name}-images-idx3-ubyte", pictures)
        idx(folder / f"{name}-labels-idx1-ubyte", labels)


def test_a_command_of_esync_trains_and_leaves_its_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fashion_mnist(tmp_path / "data" / "fashion-mnist")
    logs = tmp_path / "resnet18-v1" / "esync"
    words = COMMAND.format(data=tmp_path / "data", logs=logs), OURS.format(out=tmp_path / "run")
    assert main(["esync", *shlex.split(" ".join(words))]) == 0
    said = capsys.readouterr().err
    assert "-ll 0.0005 on the sum over a batch of 16 is --lr 0.008 on the mean" in said
    summary = read_summary(tmp_path / "run" / "summary.json")
    assert (summary.scheme, summary.model, summary.samples) == ("esync", "resnet18", 6 * 192)
    rounds = [json.loads(path.read_text()) for path in (logs / "cpu").glob("iter-*.txt")]
    assert sum(r["num_samples"] for r in rounds) == summary.workers[0].samples
    assert any("accuracy" in r for r in rounds)
    # The run may end within a round: what was trained in it is a round of the log, without an exchange.
    assert len(rounds) - summary.workers[0].exchanges in (0, 1)
    assert main(["summary", str(logs), "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert group["name"].startswith("esync")


def test_an_unknown_flag_is_an_error_where_esync_ignores_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["esync", "-m", "esync", "--evaluation", "1"]) == 2
    assert "unknown option --evaluation" in capsys.readouterr().err
