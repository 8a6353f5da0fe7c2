"""How a worker comes late."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from torch import nn

from paceline.core.errors import Stopped
from paceline.engine.model.flat_model import FlatModel
from paceline.runtime.worker import lifecycle

FLAT = FlatModel(nn.Linear(1, 1))


def test_who_comes_while_the_run_ends_takes_part_and_leaves_as_the_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = [Stopped("epochs"), "a role"]
    session = MagicMock()
    monkeypatch.setattr(lifecycle, "come_late", Mock(side_effect=outcomes))
    lifecycle.WorkerLifecycle(Mock(device="cpu"), session, Mock(), FLAT, MagicMock(), MagicMock())._come_late(
        Mock(), Mock()
    )
    assert session.enter.call_args.args[0] == "a role"


@pytest.mark.parametrize("replaced", [True, False])
def test_who_comes_late_waits_for_a_server_that_is_replaced_meanwhile(
    monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    spec, session, plan = Mock(device="cpu"), MagicMock(), Mock(replaced=replaced)
    session.node.calls.retries = False
    retries: list[Any] = []
    monkeypatch.setattr(lifecycle, "come_late", lambda *_: retries.append(session.node.calls.retries))
    member = lifecycle.WorkerLifecycle(spec, session, Mock(), FLAT, MagicMock(), MagicMock())
    member._come_late(plan, Mock())
    assert retries == [replaced], "the model is asked of servers before there is a role"
