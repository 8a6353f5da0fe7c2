"""Means over a real Gloo group, every member on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.core.effects import Mean
from paceline.core.errors import PeerLost
from paceline.engine.vector import Flat
from paceline.job.collectives import CollectiveCarrier

Member = Callable[[CollectiveCarrier], Any]


def together(folder: Path, *members: Member) -> list[Any]:
    """What each member returns, given its carrier."""

    def life(rank: int) -> Any:
        carrier = CollectiveCarrier(
            "gloo", rank, len(members), rendezvous=str(folder), device=torch.device("cpu"), timeout_s=20.0
        )
        try:
            return members[rank](carrier)
        finally:
            carrier.close()

    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(life, range(len(members))))


def mean(v: list[float], tag: str, weight: float = 1.0) -> Mean:
    return Mean(Flat.copy_of(torch.tensor(v)), (0, 1), tag, weight)


def test_means_of_any_length_may_be_under_way_at_once_in_the_same_order(tmp_path: Path) -> None:
    def member(first: float) -> Member:
        def life(carrier: CollectiveCarrier) -> list[list[float]]:
            tickets = [
                carrier.begin(mean([first] * 8, "model")),
                carrier.begin(mean([first, 0.0, 1.0], "fragment", weight=first)),
            ]
            return [ticket.wait(20.0).v.value().tolist() for ticket in reversed(tickets)]

        return life

    results = together(tmp_path, member(1.0), member(3.0))
    assert results == [[[2.5, 0.0, 1.0], [2.0] * 8]] * 2


def test_who_leaves_takes_part_whatever_the_others_average_until_they_leave_too(tmp_path: Path) -> None:
    def stays(carrier: CollectiveCarrier) -> list[float]:
        for length in (8, 3, 5):
            answer = carrier.begin(mean([7.0] * length, f"{length}")).wait(20.0)
        carrier.drain()
        return [answer.weight, *answer.v.value().tolist()]

    assert together(tmp_path, lambda carrier: carrier.drain(), stays) == [None, [1.0] + [7.0] * 5]


def test_vectors_of_unlike_lengths_are_not_added_up(tmp_path: Path) -> None:
    def member(length: int) -> Member:
        def life(carrier: CollectiveCarrier) -> str:
            with pytest.raises(PeerLost) as refused:
                carrier.begin(mean([1.0] * length, "x")).wait(20.0)
            return str(refused.value)

        return life

    assert "worker 0 has 4 numbers, all 2 together 9" in together(tmp_path, member(4), member(5))[0]
