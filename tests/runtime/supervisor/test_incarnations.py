"""Which incarnation of a party runs, and when the next one is started; processes are names in a list.

The rules themselves (how often, after which pause) are tested in `tests/core/supervisor`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline import config as configuration
from paceline.core.coordination.party import EVALUATOR, Party, server, worker
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.supervisor import incarnations as module
from paceline.runtime.supervisor.incarnations import PartyIncarnations


class Launched:
    """A launcher that notes what it is told; `clock` is in seconds."""

    def __init__(self) -> None:
        self.did: list[tuple[str, int] | str] = []
        self.clock = 100.0
        self.waiting: set[Party] = set()

    def start(self, spec: ProcessSpec) -> None:
        self.did.append((spec.party, spec.incarnation))

    def waits(self, who: Party) -> bool:
        return who in self.waiting

    def kill(self, who: Party) -> None:
        self.did.append(f"kill {who}")

    def monotonic(self) -> float:
        return self.clock

    def taken(self) -> list[tuple[str, int] | str]:
        did, self.did = self.did, []
        return did


def replace_start(launched: Launched, start: Callable[[ProcessSpec], None]) -> Launched:
    launched.start = start  # type: ignore[method-assign]
    return launched


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    launched = Launched()
    monkeypatch.setattr(module, "time", launched)
    return launched


def begun(
    launched: Launched,
    said: list[str],
    restarts: int = 1,
    absent: tuple[Party, ...] = (),
    started: Callable[[Party, int], None] = lambda who, incarnation: None,
) -> PartyIncarnations:
    config = configuration.build({"cluster": {"workers": 2, "servers": 1, "restarts": restarts}})
    of = PartyIncarnations(config, launched, said.append, started)  # type: ignore[arg-type]
    parties = (server(0), worker(0), worker(1), EVALUATOR)
    specs = {
        who: ProcessSpec(party=str(who), workers=2, servers=1, coordinator="", token="", resume="a checkpoint")
        for who in parties
    }
    of.begin(specs, absent)
    return of


def test_everybody_but_the_absent_is_started(launched: Launched) -> None:
    of = begun(launched, [], absent=(worker(1),))
    assert launched.taken() == [("server 0", 0), ("worker 0", 0), ("evaluator", 0)]
    assert of.up == {server(0), worker(0), EVALUATOR}


def test_a_worker_comes_back_as_the_next_incarnation_when_it_is_due(launched: Launched) -> None:
    of = begun(launched, [])
    launched.taken()
    of.has_ended(ProcessEnded(who=worker(0), why=""))
    of.ended(worker(0), trains=True, banned=())
    assert launched.taken() == []
    of.start_due(trains=True, needs_evaluator=True)
    assert launched.taken() == [("worker 0", 1)]
    assert worker(0) in of.up


def test_it_begins_with_what_the_one_before_found_of_its_memory(launched: Launched) -> None:
    specs = [ProcessSpec(party=f"worker {rank}", workers=2, servers=0, coordinator="", token="") for rank in (0, 1)]
    sizes, begun_with = {1: 48}, list[tuple[str, int]]()
    monitored = replace_start(launched, lambda spec: begun_with.append((spec.party, spec.part_size)))
    config = configuration.build({"cluster": {"workers": 2, "servers": 0}})
    of = PartyIncarnations(config, monitored, print, part_size=lambda rank: sizes.get(rank, 0))  # type: ignore[arg-type]
    of.begin({spec.who: spec for spec in specs}, ())
    sizes[0] = 24
    of.has_ended(ProcessEnded(who=worker(0), why=""))
    of.ended(worker(0), trains=True, banned=())
    of.start_due(trains=True, needs_evaluator=False)
    assert begun_with == [("worker 0", 0), ("worker 1", 48), ("worker 0", 24)]


def test_a_worker_is_not_started_again_once_nobody_trains(launched: Launched) -> None:
    of = begun(launched, [])
    launched.taken()
    of.ended(worker(0), trains=True, banned=())
    of.start_due(trains=False, needs_evaluator=False)
    assert launched.taken() == []


@pytest.mark.parametrize("refused", ["banned", "newcomers"])
def test_one_that_is_expelled_or_too_late_is_not_started_again(refused: str, launched: Launched) -> None:
    said: list[str] = []
    of = begun(launched, said)
    launched.taken()
    if refused == "newcomers":
        of.refuse_newcomers("worker 0 cannot join: the model is on the workers")
    of.ended(worker(0), trains=True, banned=(worker(0),) if refused == "banned" else ())
    of.start_due(trains=True, needs_evaluator=True)
    assert launched.taken() == []
    assert said == ([] if refused == "banned" else ["worker 0 cannot join: the model is on the workers"])


def test_who_has_used_up_its_restarts_is_said_to_stay_away(launched: Launched) -> None:
    said: list[str] = []
    of = begun(launched, said, restarts=1)
    launched.taken()
    for _ in range(2):
        of.ended(worker(0), trains=True, banned=())
        of.start_due(trains=True, needs_evaluator=True)
    assert launched.taken() == [("worker 0", 1)]
    assert said == ["worker 0 is not started again: --restarts 1"]


def test_the_process_of_a_lost_incarnation_is_killed_but_not_that_of_the_next(launched: Launched) -> None:
    of = begun(launched, [])
    launched.taken()
    of.lost(worker(0), 0)
    assert launched.taken() == ["kill worker 0"]
    of.next(worker(0))
    launched.taken()
    of.lost(worker(0), 0)  # heard late, when the next one is up
    assert launched.taken() == []


@pytest.mark.parametrize("first", ["given up", "ended"])
def test_a_server_is_replaced_when_it_is_given_up_and_its_process_has_ended(first: str, launched: Launched) -> None:
    of = begun(launched, [])
    of.joined(server(0), 0)
    launched.taken()
    if first == "given up":
        of.lost(server(0), 0)
    else:
        of.ended(server(0), trains=True, banned=())
    assert ("server 0", 1) not in launched.taken()
    if first == "given up":
        of.ended(server(0), trains=True, banned=())
    else:
        of.lost(server(0), 0)
    assert ("server 0", 1) in launched.taken()


def test_a_lost_evaluator_is_tried_again_later_and_once_more_for_the_last_model(launched: Launched) -> None:
    said: list[str] = []
    of = begun(launched, said, restarts=1)
    launched.taken()
    for _ in range(2):
        of.ended(EVALUATOR, trains=True, banned=())
        of.start_due(trains=True, needs_evaluator=True)
    assert launched.taken() == [("evaluator", 1)]
    assert said == ["evaluator is tried again in 60 s; nothing is evaluated or checkpointed until then"]
    launched.clock += 60.0
    of.start_due(trains=True, needs_evaluator=True)
    assert launched.taken() == [("evaluator", 2)]
    of.ended(EVALUATOR, trains=False, banned=())
    of.start_due(trains=False, needs_evaluator=True)
    assert launched.taken() == [("evaluator", 3)]


def test_who_is_refused_for_its_version_is_tried_again_after_a_pause_and_one_line_says_why(launched: Launched) -> None:
    said: list[str] = []
    of = begun(launched, said, restarts=1)
    launched.taken()
    for incarnation in (1, 2, 3):
        of.has_ended(ProcessEnded(who=worker(0), why="worker 0 speaks another version", other_version=True))
        of.ended(worker(0), trains=True, banned=())
        of.start_due(trains=True, needs_evaluator=True)
        assert launched.taken() == []
        launched.clock += 30.0
        of.start_due(trains=True, needs_evaluator=True)
        assert launched.taken() == [("worker 0", incarnation)]
    assert said == ["worker 0 speaks another version; it is tried again, after pauses of up to 30 s"]
    assert of.why_absent(worker(0)) == "; its last process was refused: worker 0 speaks another version"
    assert of.why_absent(worker(1)) == ""


def test_a_later_incarnation_is_reported_when_it_runs_and_not_while_its_host_is_away(launched: Launched) -> None:
    said: list[tuple[Party, int]] = []
    of = begun(launched, [], started=lambda who, incarnation: said.append((who, incarnation)))
    assert said == []  # everybody is waited for while the run is brought up
    launched.waiting.add(worker(1))
    for who in (worker(0), worker(1)):
        of.next(who)
    of.start_due(trains=True, needs_evaluator=True)
    assert said == [(worker(0), 1)]
    launched.waiting.clear()
    of.start_due(trains=True, needs_evaluator=True)
    of.start_due(trains=True, needs_evaluator=True)
    assert said == [(worker(0), 1), (worker(1), 1)]
    launched.waiting.add(worker(1))
    of.next(worker(1))
    of.has_ended(ProcessEnded(who=worker(1), why="killed"))  # given up before it ran
    launched.waiting.clear()
    of.start_due(trains=True, needs_evaluator=True)
    assert len(said) == 2
