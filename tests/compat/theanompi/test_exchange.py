"""Sync types and exchange strategies of Theano-MPI's BSP."""

from __future__ import annotations

import pytest

from paceline.compat.theanompi.exchange import STRATEGIES, exchange_of, scheme_of
from paceline.config.sections import CARRIERS
from paceline.core.errors import ConfigError


def test_every_strategy_is_a_carrier_that_there_is() -> None:
    assert set(STRATEGIES) == {"nccl32", "nccl16", "ar", "asa32", "asa16", "copper", "copper16"}
    assert {found.carrier for found in STRATEGIES.values()} <= set(CARRIERS)


@pytest.mark.parametrize(
    ("strategy", "devices", "line"),
    [
        ("nccl32", ["cuda:0", "cuda:1"], "nccl32 is --allreduce nccl"),
        ("nccl32", ["cuda:0", "cpu"], "nccl32 is --allreduce auto"),
        ("asa16", ["cpu", "cpu"], "asa16 is --allreduce pairwise --codec fp16"),
        ("copper", ["cpu", "cpu"], "copper is --allreduce butterfly"),
    ],
)
def test_what_it_is_here_is_said_in_one_line(strategy: str, devices: list[str], line: str) -> None:
    assert exchange_of(strategy, devices)[1] == line


def test_sync_types_are_schemes_and_others_are_refused_with_a_way_out() -> None:
    assert (scheme_of("cdd"), scheme_of("avg")) == ("bsp", "localsgd")
    with pytest.raises(ConfigError, match="GOSGD mixes models of random pairs"):
        scheme_of("swap")
    with pytest.raises(ConfigError, match="must be cdd or avg"):
        scheme_of("cdx")
    with pytest.raises(ConfigError, match="BSP_EXCH_STRATEGY=ring: must be one of nccl32"):
        exchange_of("ring", ["cpu"])
