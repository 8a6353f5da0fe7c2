"""Whose fault an exception is that a role raises while it handles a message."""

from __future__ import annotations

import pytest

from paceline.core.errors import Diverged, PeerLost, ProtocolError, Unexpected, may_be_of_message


@pytest.mark.parametrize(
    "error", [ValueError(), TypeError(), KeyError(), RuntimeError(), Unexpected(), ProtocolError()]
)
def test_a_message_may_have_caused_what_its_handler_raises(error: Exception) -> None:
    assert may_be_of_message(error)


@pytest.mark.parametrize("error", [MemoryError(), OSError(), Diverged(), PeerLost()])
def test_no_message_causes_what_the_machine_or_the_run_is_at_fault_for(error: Exception) -> None:
    assert not may_be_of_message(error)


def test_torch_without_memory_is_the_machine() -> None:
    torch = pytest.importorskip("torch")
    assert not may_be_of_message(torch.OutOfMemoryError())
