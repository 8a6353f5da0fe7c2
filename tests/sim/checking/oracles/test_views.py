"""Each change of who takes part has a view of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.sim.checking.oracles.views import Views

PARTY: Any = SimpleNamespace(name="server 0", process=("server 0", 0))


def joins(rank: int, view: int) -> control.WorkerJoined:
    return control.WorkerJoined(rank=rank, incarnation=1, view=view, address="", host="")


def left(rank: int) -> control.WorkerLeft:
    return control.WorkerLeft(rank=rank, lost=True, incarnation=0)


def test_changes_that_each_have_a_view_pass_and_so_do_views_that_a_party_did_not_hear_of() -> None:
    views = Views(AssertionError)
    for message in (left(1), joins(1, 7), left(2), left(1), joins(2, 10), control.Stop(reason=""), joins(1, 15)):
        views.told(PARTY, message)


@pytest.mark.parametrize(("gone", "view"), [(0, 7), (1, 8), (2, 9)])
def test_a_change_without_a_view_of_its_own_is_found(gone: int, view: int) -> None:
    views = Views(AssertionError)
    views.told(PARTY, joins(1, 7))
    for rank in range(gone):
        views.told(PARTY, left(rank))
    with pytest.raises(AssertionError, match=f"joins in view {view}; {gone} are gone since another joined in view 7"):
        views.told(PARTY, joins(2, view))
