"""Theano-MPI's pickled records: numbers and arrays are read, and nothing that a pickle asks for is carried out."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.compat.theanompi.record_converter import PickleReader, main
from paceline.core.errors import ConfigError

RECORD = {
    "train_info": [[40, 2.3, 0.9], [80, 2.1, 0.8]],
    "val_info": np.array([[80, 2.0, 0.7, 0.2]], np.float32),
    "all_time": [[40, 122.1, 120.0, 0.0, 2.1]],  # of 2016, without sync
    "epoch_time": [(80, 300.5)],
    "lr": [[80, np.float64(0.01)]],
}


class Evil:
    def __reduce__(self) -> Any:
        import os

        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_record_of_any_protocol_is_converted(
    protocol: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inforec.pkl").write_bytes(pickle.dumps(RECORD, protocol))
    assert main([str(tmp_path / "inforec.pkl"), str(tmp_path / "out")]) == 0
    assert "all_time, epoch_time, lr, train_info, val_info in" in capsys.readouterr().out
    read = {name: np.load(tmp_path / "out" / f"{name}.npy", allow_pickle=False) for name in RECORD}
    assert read["train_info"].tolist() == RECORD["train_info"]
    assert read["val_info"].tolist() == pytest.approx(np.array(RECORD["val_info"]))
    assert read["all_time"].tolist() == [[40, 122.1, 120.0, 0.0, 0.0, 2.1]]
    assert read["lr"].tolist() == [[80, 0.01]]


def test_what_python_2_pickled_is_read() -> None:
    # pickle.dumps({"lr": [numpy.array([1.5])]}, 2) of Python 2, whose strings are bytes.
    text = (
        b"\x80\x02}q\x00U\x02lrq\x01]q\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85q\x05"
        b"U\x01bq\x06\x87q\x07Rq\x08(K\x01K\x01\x85q\tcnumpy\ndtype\nq\nU\x02f8q\x0bK\x00K\x01\x87q\x0cRq\r(K\x03U\x01<q"
        b"\x0eNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0fb\x89U\x08\x00\x00\x00\x00\x00\x00\xf8?q\x10tq\x11bas."
    )
    assert PickleReader().read(text) == {"lr": [[1.5]]}


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_is_imported_or_called(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"the pickle imports (os|posix|nt)\.mkdir; only arrays of numbers are read"):
        PickleReader().read(pickle.dumps({"lr": [Evil()]}, protocol))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps({"other": 1}), "no record of Theano-MPI"),
        (pickle.dumps({"lr": [[1, 2, 3]]}), "lr: rows of 3 numbers, not of 2"),
        (pickle.dumps({"lr": ["x"]}), "lr: not rows of 2 numbers"),
        (pickle.dumps({"lr": np.array([object()])}), "only numbers are read"),
        (b"nonsense", "no pickle"),
        (pickle.dumps(RECORD)[:-30], "no pickle"),
        (pickle.dumps({1, 2}, 4), "the instruction EMPTY_SET"),
        (b"a.", "byte 0: APPEND does not fit"),
    ],
)
def test_what_is_no_record_is_refused_in_a_line(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inforec.pkl").write_bytes(content)
    assert main([str(tmp_path / "inforec.pkl"), str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
