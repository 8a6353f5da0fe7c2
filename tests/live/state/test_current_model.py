"""The model of the run, read of workers of which one may lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import PeerLost
from paceline.live.state.current_model import peeked_models
from tests.live.fakes import vector

MODELS: list[Any] = [vector(1, 1), vector(math.nan, 1), vector(3, 3)]


def read(rank: int) -> tuple[Any, float]:
    if rank == 3:
        raise PeerLost("it left")
    return MODELS[rank], 1.0


@pytest.mark.parametrize(("ranks", "of"), [((0, 1, 2), [0, 2]), ((1, 2), [2]), ((1,), [1]), ((1, 3), [1])])
def test_a_model_with_nan_is_left_out_while_there_is_another_one(ranks: tuple[int, ...], of: list[int]) -> None:
    found = [v for v, _ in peeked_models(read, list(ranks), [])]
    assert [id(v) for v in found] == [id(MODELS[rank]) for rank in of]


def test_beside_a_model_of_ones_own_one_with_nan_is_left_out() -> None:
    assert list(peeked_models(read, [1])) == []
    ((v, _),) = peeked_models(read, [1, 2])
    assert np.array_equal(v, MODELS[2])
