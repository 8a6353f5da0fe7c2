"""Orders of a person on their way to the process that leads the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.core.coordination.operator_orders import OperatorOrder
from paceline.core.errors import ConfigError
from paceline.runtime.run_folder.order_folder import BYTES_MAX, FOLDER, OrderFolder


def test_orders_are_taken_once_in_their_order(tmp_path: Path) -> None:
    folder = OrderFolder(tmp_path)
    assert folder.take() == []
    orders = [OperatorOrder(kind="expel", rank=3), OperatorOrder(kind="learning-rate", factor=0.5)]
    for order in orders:
        folder.post(order)
    assert OrderFolder(tmp_path).take() == orders
    assert folder.take() == []
    assert os.stat(tmp_path / FOLDER).st_mode & 0o077 == 0


def test_what_an_earlier_run_was_asked_is_not_for_this_one(tmp_path: Path) -> None:
    folder = OrderFolder(tmp_path)
    folder.post(OperatorOrder(kind="grow"))
    folder.clear()
    assert folder.take() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        '{"kind": "destroy"}',
        '{"kind": "expel", "rank": "x"}',
        '{"kind": "expel", "rank": true}',
        '{"kind": "learning-rate", "factor": NaN}',
        '{"kind": "expel", "more": 1}',
        " " * (BYTES_MAX + 1),
    ],
)
def test_a_file_that_is_no_order_is_removed_with_a_line(tmp_path: Path, text: str) -> None:
    said: list[str] = []
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "1.json").write_text(text)
    assert OrderFolder(tmp_path, said.append).take() == []
    assert list((tmp_path / FOLDER).iterdir()) == []
    assert "no order of the operator" in said[0]
    assert "\n" not in said[0]


def test_a_link_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / FOLDER).mkdir()
    (tmp_path / "secret").write_text('{"kind": "grow"}')
    (tmp_path / FOLDER / "1.json").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / FOLDER / "2.json")
    assert OrderFolder(tmp_path, said.append).take() == []
    assert len(said) == 2
    assert (tmp_path / "secret").exists()


def test_an_order_that_another_user_can_write_does_not_count(tmp_path: Path) -> None:
    said: list[str] = []
    OrderFolder(tmp_path).post(OperatorOrder(kind="grow"))
    (file,) = (tmp_path / FOLDER).iterdir()
    file.chmod(0o666)
    assert OrderFolder(tmp_path, said.append).take() == []
    assert "another user" in said[0]


def test_a_folder_of_another_user_or_that_others_can_write_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    orders = OrderFolder(tmp_path, said.append)
    orders.post(OperatorOrder(kind="grow"))
    (tmp_path / FOLDER).chmod(0o777)
    assert orders.take() == orders.take() == []
    assert said == [f"{tmp_path / FOLDER}: orders of the operator are not read: others may write into it"]
    with pytest.raises(ConfigError, match="others may write into it; the order was not given"):
        orders.post(OperatorOrder(kind="grow"))
    (tmp_path / FOLDER).chmod(0o700)
    assert len(orders.take()) == 1
    orders.post(OperatorOrder(kind="grow"))
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert orders.take() == []


def test_a_link_to_another_folder_has_none_of_its_files_read_or_removed(tmp_path: Path) -> None:
    other, run, said = tmp_path / "other", tmp_path / "run", list[str]()
    OrderFolder(other.parent).post(OperatorOrder(kind="grow"))
    (tmp_path / FOLDER).rename(other)
    (other / "data.json").write_text("precious")
    run.mkdir()
    (run / FOLDER).symlink_to(other)
    orders = OrderFolder(run, said.append)
    orders.clear()
    assert orders.take() == []
    with pytest.raises(ConfigError):
        orders.post(OperatorOrder(kind="grow"))
    assert len(list(other.iterdir())) == 2
    assert len(said) == 1


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file")
    with pytest.raises(ConfigError, match="the order was not given"):
        OrderFolder(tmp_path).post(OperatorOrder(kind="grow"))
