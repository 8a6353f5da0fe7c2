"""Which messages are dropped after servers went back."""

from __future__ import annotations

import pytest

from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.parties.server_view import is_undone


@pytest.mark.parametrize(
    ("src", "dst"), [(worker(0), server(1)), (server(1), worker(0)), (server(0), server(1)), (COORDINATOR, server(0))]
)
def test_what_a_server_sends_or_is_sent_counts_in_one_view_only(src: Party, dst: Party) -> None:
    assert not is_undone(2, 2, src, dst)
    assert is_undone(1, 2, src, dst), "it is of the past"
    assert is_undone(2, 1, src, dst), "the receiver will go back, too"


def test_what_workers_tell_one_another_counts_in_any_view() -> None:
    assert not is_undone(1, 2, worker(0), worker(1))
