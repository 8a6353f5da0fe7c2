"""Runs in which processes of other versions come: what is drawn, that none of them takes part, and that runs go on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.parties import first_contact
from paceline.core.scheme import names
from paceline.core.supervisor import restart_policy
from paceline.core.supervisor.processes import ProcessSupervision
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.faults.coordination import supervisor
from paceline.sim.fuzzing.fuzz import FuzzPlan, draw, go_to_its_end, play, simulation, versions_of
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.runs import upgrades

SEEDS = 240


def plan_of(seed: int) -> FuzzPlan:
    return replace(draw(seed, schemes_of(seed, names())), runs=("upgrade",))


def wishes(seeds: range) -> Iterator[tuple[FuzzPlan, StopWish]]:
    for seed in seeds:
        plan = plan_of(seed)
        if wish := versions_of(plan):
            yield plan, wish


@pytest.mark.parametrize("part", range(4))
def test_a_run_goes_on_without_who_is_refused_and_with_who_comes_in_the_right_version(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        play(plan_of(seed))


def test_workers_servers_and_newcomers_are_refused_and_hosts_are_put_right_or_never() -> None:
    refused: Counter[str] = Counter()
    drawn: Counter[str] = Counter()
    why: list[str] = []
    for plan, wish in wishes(range(2 * SEEDS)):
        assert wish.upgrades is not None
        sim = simulation(plan, None, wish)
        why.append(go_to_its_end(sim, wish, upgrades.check))
        assert sim.members.supervisor is not None
        refused += sim.members.supervisor.oracle.refusals
        drawn["never put right"] += any(until == math.inf for _, _, until in wish.upgrades.other.values())
        drawn["newcomers"] += len(wish.upgrades.late)
        drawn["older"] += any(version == upgrades.OTHERS[0] for version, _, _ in wish.upgrades.other.values())
    workers = sum(count for name, count in refused.items() if name.startswith("worker"))
    servers = sum(count for name, count in refused.items() if name.startswith("server"))
    assert workers > 100
    assert servers > 20
    assert min(drawn.values()) > 20
    ended = [line for line in why if line]
    assert 0 < len(ended) < len(why) / 2
    assert any("waited 60 s for server" in line and "protocol version" in line for line in ended)


def found(message: str, seeds: int = SEEDS) -> None:
    with pytest.raises(AssertionError, match=message):
        for seed in range(seeds):
            play(plan_of(seed))


def test_a_coordinator_that_lets_everybody_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "why_refused", lambda theirs, mine: "")
    found("takes part, and speaks version")


def test_a_refusal_that_names_one_version_only_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_contact, "why_refused", lambda theirs, mine: f"version {theirs} is refused")
    found("and version . is not named")


def test_a_process_that_is_tried_again_at_once_for_ever_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_policy, "pause_after", lambda short, most=0.0: 0.0)
    found("is tried again after")


def test_restarts_that_refusals_use_up_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessSupervision, "refused", lambda self, who, why: None)
    found("does not take part, though it has had the right version|is said again|is tried again|does not say so")


def test_a_line_for_each_refusal_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ProcessSupervision._line_about

    def again(self: ProcessSupervision, who: object) -> object:
        self._told.clear()
        return line(self, who)  # type: ignore[arg-type]

    monkeypatch.setattr(ProcessSupervision, "_line_about", again)
    found("is said again")
