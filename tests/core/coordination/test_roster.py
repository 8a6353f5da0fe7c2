"""Everybody learns the addresses of the others."""

from __future__ import annotations

from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.trace import MemberChange
from tests.live.scripted_parties import Company


def test_everybody_learns_where_everybody_is(companies: Any) -> None:
    company: Company = companies()
    for who in company.everybody:
        company.say(who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu"))
    for who in company.everybody:
        assert company.hears(who).addresses == {str(other): f"hub:{other}" for other in company.everybody}
    joined = [record.party for record in company.ears.records if isinstance(record, MemberChange)]
    assert sorted(joined) == sorted(map(str, company.everybody))
