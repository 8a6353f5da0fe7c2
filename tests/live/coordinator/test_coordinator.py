"""The coordinator's end of the control plane, against parties that follow a script."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.trace import Ended, MemberChange
from tests.live.fakes import take
from tests.live.scripted_parties import S0, W0, Company


def test_records_of_the_others_are_handed_on_as_they_were(companies: Any) -> None:
    company: Company = companies()
    company.train()
    lines = ['["ended",1.5,"a"]', '["membership",2,"p","e","","",""]']
    company.say(S0, control.Records(lines="\n".join(lines)))
    company.settled()
    assert company.ears.records[-2:] == [Ended(at=1.5, reason="a"), MemberChange(at=2, party="p", event="e")]


@pytest.mark.parametrize("message", [control.Go(), control.Exit()], ids=["Go", "Exit"])
def test_what_only_the_coordinator_says_is_refused_from_others(companies: Any, message: Any) -> None:
    company: Company = companies()
    company.say(W0, message)
    assert str(take(company.escaped)) == f"worker 0 may not send {type(message).__name__} as CONTROL to coordinator"
