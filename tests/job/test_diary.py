"""What a worker writes down of where it stands in its data."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import torch

from paceline.job.capturing import CHECKPOINT
from paceline.job.diary import AT_ONCE, Diary, Entry
from paceline.live.exhibits import STATE
from paceline.live.states import kept


def positions(diary: Diary, exhibits: dict[str, Any]) -> dict[int, int]:
    diary.want(AT_ONCE)
    diary.between()
    entries = json.loads(exhibits[kept(CHECKPOINT, STATE)](0).facts)["entries"]
    return {int(clock): Entry.from_json(entry).position for clock, entry in entries.items()}


def test_where_a_newcomer_begins_in_its_data_is_known_once_it_asks_for_them() -> None:
    class Exhibits(dict[str, Any]):
        def withdraw(self, names: list[str]) -> None:
            for name in names:
                del self[name]

    exhibits = Exhibits()
    node: Any = SimpleNamespace(exhibits=exhibits)
    diary = Diary(node, torch.device("cpu"), lambda: ({}, {}))
    diary.begin(7, steps=7, position=0)
    diary.corrected(224)
    assert positions(diary, exhibits) == {7: 224}
    diary.contributed(8, 256)
    diary.corrected(1)  # too late: what was handed over is of data that were there
    assert positions(diary, exhibits) == {7: 224, 8: 256}
