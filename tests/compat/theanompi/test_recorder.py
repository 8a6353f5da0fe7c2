"""The recorder: what it prints, and arrays without pickle under the names of Theano-MPI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.compat.theanompi.recorder import WIDTHS, Recorder


def filled() -> Recorder:
    recorder = Recorder(print_freq=2)
    for count in range(4):
        recorder.start()
        recorder.end("calc")
        recorder.train_error(count, cost=1.0 + count, error=0.5)
        recorder.print_train_info(count + 1)
    recorder.val_error(0, 1.0, 0.25, 0.0)
    recorder.val_error(1, 3.0, 0.75, 0.5)
    assert recorder.print_val_info(4) == (2.0, 0.5, 0.25)
    recorder.end_epoch(4, epoch=0, lr=0.1)
    return recorder


def test_it_prints_as_theano_mpi_does(capsys: pytest.CaptureFixture[str]) -> None:
    filled()
    out = capsys.readouterr().out
    assert "2 1.500000 0.500000\n" in out
    assert "time per 2 batches: " in out
    assert "validation cost:2.0000\nvalidation error:0.5000\nvalidation top_5_error:0.2500" in out


def test_arrays_are_saved_without_pickle_and_read_again(tmp_path: Path) -> None:
    recorder = filled()
    recorder.save(tmp_path)
    arrays = {name: np.load(tmp_path / f"{name}.npy", allow_pickle=False) for name in WIDTHS}
    assert arrays["train_info"].tolist() == [[2.0, 1.5, 0.5], [4.0, 3.5, 0.5]]
    assert arrays["val_info"].tolist() == [[4.0, 2.0, 0.5, 0.25]]
    assert arrays["all_time"].shape == (2, 6)
    again = Recorder()
    again.load(tmp_path)
    assert again.info == recorder.info
    again.cut(2)
    assert again.info["train_info"] == [(2.0, 1.5, 0.5)]
    assert again.info["val_info"] == []


def test_only_rank_0_prints_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Recorder(1, print_freq=1)
    other.train_error(0, 1.0, 0.5)
    other.print_train_info(1)
    other.save(tmp_path / "inforec")
    assert not (tmp_path / "inforec").exists()
    assert capsys.readouterr().out == ""
