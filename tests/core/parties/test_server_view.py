"""Which messages are dropped after servers went back, and how the loop of a worker starts anew then.

the loop is resumed with            then
an answer, or the result of work    the value is dropped; `run` starts
PeerLost, or Undone                 the loss is dropped; `run` starts
any other error                     it is raised
whatever comes next                 `run` gets it
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.effects import Compute
from paceline.core.errors import PeerLost, Undone
from paceline.core.parties.server_view import is_undone, loop_anew


@pytest.mark.parametrize(
    ("src", "dst"), [(worker(0), server(1)), (server(1), worker(0)), (server(0), server(1)), (COORDINATOR, server(0))]
)
def test_what_a_server_sends_or_is_sent_counts_in_one_view_only(src: Party, dst: Party) -> None:
    assert not is_undone(2, 2, src, dst)
    assert is_undone(1, 2, src, dst), "it is of the past"
    assert is_undone(2, 1, src, dst), "the receiver will go back, too"


def test_what_workers_tell_one_another_counts_in_any_view() -> None:
    assert not is_undone(1, 2, worker(0), worker(1))


class Counting:
    """A role whose loop notes what it gets, and how often it began."""

    def __init__(self) -> None:
        self.begun, self.heard, self.got = 0, 0, list[Any]()
        self.loop = loop_anew(self, self.begins)  # type: ignore[arg-type]

    def begins(self) -> None:
        self.heard += 1
        assert self.begun == self.heard - 1, "it hears of that first"

    def run(self) -> Generator[Any, Any, None]:
        self.begun += 1
        try:
            while True:
                self.got.append((yield Compute(len(self.got))))
        except PeerLost as lost:
            self.got.append(lost)


def test_a_loop_starts_anew_when_it_is_resumed_and_drops_what_it_is_resumed_with() -> None:
    role = Counting()
    assert (role.begun, role.heard) == (0, 0)
    assert role.loop.send("of before") == Compute(0)
    assert (role.begun, role.heard, role.got) == (1, 1, [])
    assert role.loop.send("result") == Compute(1)
    assert role.got == ["result"]


@pytest.mark.parametrize("error", [PeerLost("worker 1"), Undone("a server was replaced")])
def test_a_loss_is_dropped_as_well_and_those_after_it_are_not(error: PeerLost) -> None:
    role = Counting()
    assert role.loop.throw(error) == Compute(0)
    later = PeerLost("worker 2")
    with pytest.raises(StopIteration):
        role.loop.throw(later)
    assert role.got == [later]


def test_an_error_that_ends_the_run_is_raised() -> None:
    role = Counting()
    with pytest.raises(ZeroDivisionError):
        role.loop.throw(ZeroDivisionError())
    assert role.begun == 0
