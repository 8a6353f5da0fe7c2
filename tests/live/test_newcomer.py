"""From whom a worker that comes late takes its place."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from paceline.core.errors import PeerLost
from paceline.core.pushing import ClockedWorker
from paceline.core.role import Role
from paceline.live.newcomer import come_late


class Alone:
    """A session in which all who trained are lost, and the servers have the model."""

    departed = frozenset({1, 2})

    def __init__(self) -> None:
        self.node = Mock()
        self.node.me.index = 0
        self.node.peek.return_value = "the weights of the servers"


def role_of(box: type[Role]) -> Any:
    def role_with(w: Any) -> Role:
        role = box.__new__(box)
        role.w = w
        return role

    return role_with


def test_where_all_who_trained_are_lost_the_servers_give_a_newcomer_its_place() -> None:
    role = come_late(Alone(), "servers", 3, role_of(ClockedWorker))  # type: ignore[arg-type]
    assert (role.w, role.clock) == ("the weights of the servers", 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("model_of", "box"), [("servers", Role), ("any worker", ClockedWorker)])
def test_where_servers_do_not_know_all_of_it_the_run_cannot_go_on(model_of: Any, box: type[Role]) -> None:
    with pytest.raises(PeerLost, match="nobody is left whom"):
        come_late(Alone(), model_of, 3, role_of(box))  # type: ignore[arg-type]
