"""What a worker writes down of where it stands in its data."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import torch

from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import CHECKPOINT, kept
from paceline.runtime.checkpointing.worker_position import AT_ONCE, Position, PositionLog


def positions(position_log: PositionLog, published: dict[str, Any]) -> dict[int, int]:
    position_log.want(AT_ONCE)
    position_log.between()
    entries = json.loads(published[kept(CHECKPOINT, STATE)](0).facts)["entries"]
    return {int(clock): Position.from_json(entry).position for clock, entry in entries.items()}


class PublishedByName(dict[str, Any]):
    def withdraw(self, names: list[str]) -> None:
        for name in names:
            del self[name]


def test_where_a_newcomer_begins_in_its_data_is_known_once_it_asks_for_them() -> None:
    published = PublishedByName()
    node: Any = SimpleNamespace(published=published)
    position_log = PositionLog(node, torch.device("cpu"), lambda: ({}, {}))
    position_log.begin(7, steps=7, position=0)
    position_log.corrected(224)
    assert positions(position_log, published) == {7: 224}
    position_log.contributed(8, 256)
    position_log.corrected(1)  # too late: what was handed over is of data that were there
    assert positions(position_log, published) == {7: 224, 8: 256}


def test_what_the_servers_have_forgotten_is_not_counted_as_handed_over() -> None:
    published = PublishedByName()
    node: Any = SimpleNamespace(published=published)
    position_log = PositionLog(node, torch.device("cpu"), lambda: ({}, {}))
    position_log.begin(0, steps=0, position=0)
    position_log.on_rollback()  # nothing was under way
    for step in range(1, 11):
        position_log.contributed(step, step * 32)
        position_log.between()
    position_log.contributed(11, 11 * 32)
    position_log.on_rollback()
    assert positions(position_log, published) == {10: 320}
    position_log.contributed(12, 12 * 32)
    assert positions(position_log, published) == {10: 320, 11: 384}


def test_what_comes_after_the_end_changes_nothing_of_what_is_kept() -> None:
    published = PublishedByName()
    node: Any = SimpleNamespace(published=published)
    states = iter([{"w": 1}, {"w": 2}])
    position_log = PositionLog(node, torch.device("cpu"), lambda: (next(states), {}))
    position_log.begin(0, steps=0, position=0)
    position_log.contributed(1, 32)
    position_log.between(1)
    position_log.end()
    position_log.between(3, whole=False)  # the last exchange
    position_log.end()
    position_log.want(AT_ONCE)
    kept_last = json.loads(published[kept(CHECKPOINT, STATE)](0).facts)
    assert (kept_last["w"], kept_last["clock"], kept_last["whole"]) == (1, 1, True)


def test_generators_of_further_ranks_are_noted_behind_the_workers_own() -> None:
    published = PublishedByName()
    node: Any = SimpleNamespace(published=published)
    of_ranks = [torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([3], dtype=torch.uint8)]
    position_log = PositionLog(node, torch.device("cpu"), lambda: ({}, {}), lambda: of_ranks)
    position_log.begin(0, steps=0, position=0)
    position_log.contributed(1, 32)
    for entry in position_log._entries.values():
        own, *others = Position.from_json(entry.to_json()).generators
        assert torch.equal(own, torch.get_rng_state())
        assert [state.tolist() for state in others] == [[1, 2], [3]]
