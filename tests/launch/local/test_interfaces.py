"""Which interface an address has, for libraries that ask for a name."""

from __future__ import annotations

from paceline.launch.local.interfaces import INTERFACE_OF_NCCL, addresses, for_nccl


def test_nccl_takes_the_interface_of_the_address_that_was_asked_for() -> None:
    known = dict(reversed([(address, name) for name, address in addresses() if ":" not in address]))
    assert {address: for_nccl(address, {}) for address in known} == {
        address: {INTERFACE_OF_NCCL: f"={name}"} for address, name in known.items()
    }
    assert for_nccl("127.0.0.7", {}) == for_nccl("127.0.0.1", {}) == {INTERFACE_OF_NCCL: "=lo"}


def test_what_somebody_has_said_stays_and_an_address_of_nobody_says_nothing() -> None:
    assert for_nccl("127.0.0.1", {INTERFACE_OF_NCCL: "ib0"}) == {}
    assert for_nccl("192.0.2.1", {}) == {}
