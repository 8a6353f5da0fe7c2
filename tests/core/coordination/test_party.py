"""The parties of a run by name."""

from __future__ import annotations

import pytest

from paceline.core.coordination.party import COORDINATOR, EVALUATOR, Party, server, worker


@pytest.mark.parametrize("who", [worker(0), worker(12), server(3), COORDINATOR, EVALUATOR])
def test_the_text_of_a_party_names_it_again(who: Party) -> None:
    assert Party.parse(str(who)) == who


def test_only_workers_and_servers_are_numbered() -> None:
    assert list(map(str, (worker(2), server(0), COORDINATOR, EVALUATOR))) == [
        "worker 2",
        "server 0",
        "coordinator",
        "evaluator",
    ]


@pytest.mark.parametrize("text", ["", "worker x", "workers 1", "Worker 1", "1"])
def test_what_names_nobody_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Party.parse(text)
