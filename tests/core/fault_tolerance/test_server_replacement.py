"""Which schemes go on with another server in the place of a lost one, and which without a loss."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.fault_tolerance.server_replacement import why_not_copied, why_not_replaced
from paceline.core.scheme import make


@pytest.mark.parametrize(
    ("scheme", "servers", "replaced", "copied"),
    [
        ("bsp", 2, "", ""),
        ("ssp", 2, "", ""),
        ("ksync", 2, "", "ksync answers contributions of which no copy knows yet"),
        ("decoupled", 2, "", "decoupled answers contributions of which no copy knows yet"),
        (
            "bsp",
            0,
            "under bsp servers carry means, of which workers may have different halves by then",
            "",
        ),
        ("easgd", 2, "easgd cannot go back to an earlier state in the middle of a run", ""),
    ],
)
def test_what_becomes_of_a_lost_server(scheme: str, servers: int, replaced: str, copied: str) -> None:
    of = make(scheme, {})
    assert (why_not_replaced(of, servers), why_not_copied(of)) == (replaced, copied)
