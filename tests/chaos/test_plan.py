"""What a seed means, and what is refused."""

from __future__ import annotations

import pytest

from paceline.chaos.plan import KINDS, draw, kinds_of
from paceline.core.errors import ConfigError

SIZES = {"count": 300, "every_s": 2.0, "workers": 4, "servers": 2, "dead_after_s": 5.0}


def test_the_same_seed_draws_the_same_faults_and_another_one_others() -> None:
    assert draw(1, KINDS, **SIZES) == draw(1, KINDS, **SIZES)
    assert draw(1, KINDS, **SIZES) != draw(2, KINDS, **SIZES)


def test_there_is_one_fault_every_so_many_seconds_of_every_kind_for_everybody_it_is_for() -> None:
    plan = draw(1, KINDS, **SIZES)
    assert [fault.at_s for fault in plan] == [2.0 * number for number in range(1, 301)]
    assert {fault.kind for fault in plan} == set(KINDS)
    whom = {kind: {str(fault.whom) for fault in plan if fault.kind == kind} for kind in KINDS}
    workers, servers = {f"worker {rank}" for rank in range(4)}, {"server 0", "server 1"}
    assert whom["server"] == servers
    assert whom["evaluator"] == {"evaluator"}
    assert whom["partition"] == workers | servers
    assert all(whom[kind] == workers for kind in ("kill", "stop", "slow"))


def test_stops_and_partitions_are_shorter_and_longer_than_the_silence_that_counts_as_death() -> None:
    for kind in ("stop", "partition"):
        lengths = {fault.for_s for fault in draw(1, KINDS, **SIZES) if fault.kind == kind}
        assert min(lengths) < 5.0 < max(lengths)


@pytest.mark.parametrize(("text", "says"), [("kil", "did you mean 'kill'"), ("kill,kill", "name each fault once")])
def test_what_is_no_fault_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kinds_of(text)
