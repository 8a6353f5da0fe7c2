"""Means over a real Gloo group, every member on a thread of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from paceline.core.effects import Mean
from paceline.core.errors import ConfigError, Diverged, ProtocolError
from paceline.core.paramserver.peer_check import OwnResults
from paceline.engine.vectors.flat import Flat
from paceline.runtime.collectives.torch_distributed import CollectiveCarrier

Member = Callable[[CollectiveCarrier], Any]


def together(*members: Member, check: OwnResults | None = None) -> list[Any]:
    """What each member returns, given its carrier."""
    store: Any = dist.HashStore()  # type: ignore[attr-defined]

    def incarnation(rank: int) -> Any:
        carrier = CollectiveCarrier(
            "gloo",
            rank,
            len(members),
            store=store,
            bind="127.0.0.1",
            device=torch.device("cpu"),
            timeout_s=20.0,
            check=check,
        )
        try:
            return members[rank](carrier)
        finally:
            carrier.close()

    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(incarnation, range(len(members))))


def mean(v: list[float], tag: str, weight: float = 1.0) -> Mean:
    return Mean(Flat.copy_of(torch.tensor(v)), (0, 1), tag, weight)


def test_means_of_any_length_may_be_under_way_at_once_in_the_same_order() -> None:
    def member(first: float) -> Member:
        def incarnation(carrier: CollectiveCarrier) -> list[list[float]]:
            tickets = [
                carrier.begin(mean([first] * 8, "model")),
                carrier.begin(mean([first, 0.0, 1.0], "fragment", weight=first)),
            ]
            return [ticket.wait(20.0).v.value().tolist() for ticket in reversed(tickets)]

        return incarnation

    results = together(member(1.0), member(3.0))
    assert results == [[[2.5, 0.0, 1.0], [2.0] * 8]] * 2


def test_who_leaves_takes_part_whatever_the_others_average_until_they_leave_too() -> None:
    def stays(carrier: CollectiveCarrier) -> list[float]:
        for length in (8, 3, 5):
            answer = carrier.begin(mean([7.0] * length, f"{length}")).wait(20.0)
        carrier.drain()
        return [answer.weight, *answer.v.value().tolist()]

    assert together(lambda carrier: carrier.drain(), stays) == [None, [1.0] + [7.0] * 5]


def refused(*effects: Mean) -> Member:
    """A member that begins these means and is told why the first one cannot be."""

    def incarnation(carrier: CollectiveCarrier) -> str:
        tickets = [carrier.begin(effect) for effect in effects]
        with pytest.raises(ProtocolError) as error:
            tickets[0].wait(20.0)
        return str(error.value)

    return incarnation


def test_vectors_of_unlike_lengths_are_not_added_up() -> None:
    told = together(refused(mean([1.0] * 4, "x")), refused(mean([1.0] * 5, "x")))
    assert told[0] == "this worker's next mean is x of 4 numbers, and another's is a different one"
    assert "x of 5 numbers" in told[1]


def test_means_that_are_begun_in_different_orders_are_not_mixed_up() -> None:
    one, other = mean([1.0], "one"), mean([2.0], "other")
    told = together(refused(one, other), refused(other, one))
    assert ["one of 1 numbers" in told[0], "other of 1 numbers" in told[1]] == [True, True]


def test_a_mean_among_some_of_the_workers_is_refused_naming_who_can_carry_it() -> None:
    def member(carrier: CollectiveCarrier) -> str:
        with pytest.raises(ConfigError) as error:
            carrier.begin(Mean(Flat.copy_of(torch.ones(3)), (0,), "half"))
        return str(error.value)

    (told, _) = together(member, member)
    assert told.startswith("half is a mean among 1 of 2 workers")
    assert "--allreduce servers" in told


def test_a_vector_that_is_not_finite_counts_nothing_and_two_of_them_mean_that_the_model_has_diverged() -> None:
    def member(first: float) -> Member:
        def incarnation(carrier: CollectiveCarrier) -> tuple[list[float], float, str]:
            good = carrier.begin(mean([first, 1.0], "one bad", weight=3.0)).wait(20.0)
            with pytest.raises(Diverged) as error:
                carrier.begin(mean([math.inf, first], "all bad")).wait(20.0)
            return good.v.value().tolist(), good.weight, str(error.value)

        return incarnation

    told: list[tuple[int, bool, bool]] = []
    own = OwnResults(lambda *said: told.append(said))
    said = "the model has diverged: nobody's part of the mean all bad is finite; lower --lr"
    assert together(member(math.nan), member(7.0), check=own) == [([7.0, 1.0], 3.0, said)] * 2
    assert [finite for _, finite, mean in told if mean].count(False) == 3
