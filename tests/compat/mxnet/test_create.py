"""Stores that cannot be are refused before anything starts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.kvstore import create


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"type": "dist_asink"}, "unknown type of store 'dist_asink'; did you mean 'dist_async'"),
        ({"type": "local", "staleness": 2}, "leave them out of local"),
        ({"type": "dist_sync", "staleness": 2}, "staleness is for dist_ssync"),
        ({"type": "dist_gsync", "groups": [[0, 1]]}, "every rank from 0 to 0, each once"),
        ({"type": "dist_sync", "timeout_s": -1.0}, "must be 0 or more seconds"),
    ],
)
def test_a_store_that_cannot_be_is_refused_before_anything_starts(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        create(**options)


def test_a_codec_with_a_momentum_of_its_own_does_not_go_with_an_optimizer_that_has_one() -> None:
    for first, second in ((0, 1), (1, 0)):
        kv = create("device")
        acts = [
            lambda kv=kv: kv.set_optimizer("sgd", lr=0.1, momentum=0.9),
            lambda kv=kv: kv.set_gradient_compression({"type": "dgc"}),
        ]
        acts[first]()
        with pytest.raises(ConfigError, match="dgc has a momentum of its own"):
            acts[second]()
    kv.set_optimizer("sgd", lr=0.1)


def test_a_rate_that_is_no_number_is_refused_and_a_closed_store_says_that_it_is_closed() -> None:
    kv = create("dist_async")
    kv.set_optimizer("sgd", lr=1.0)
    kv.init("w", torch.zeros(1))
    for lr in (math.inf, math.nan, "fast"):
        with pytest.raises(ConfigError, match="must be a number, 0 or more"):
            kv.set_learning_rate(lr)  # type: ignore[arg-type]
    kv.push("w", torch.ones(1))
    assert kv.pull("w").item() == -1.0
    kv.close()
    for act in (lambda: kv.pull("w"), lambda: kv.push("w", torch.ones(1)), kv.barrier):
        with pytest.raises(ConfigError, match="the store is closed: create another one"):
            act()
