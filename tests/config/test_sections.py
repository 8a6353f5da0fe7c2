"""Sections: unknown keys and values that do not fit are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.config import build
from tests.config.settings import refusal


def test_whole_numbers_will_do_where_numbers_are_wanted() -> None:
    config = build({"optimizer": {"lr": 1}, "cluster": {"workers": 2, "slowdown": [1, 2], "step_ms": 5}})
    assert config.optimizer.lr == 1.0
    assert isinstance(config.optimizer.lr, float)
    assert config.cluster.slowdown == (1.0, 2.0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"clutser": {"workers": 2}}, "did you mean 'cluster'"),
        ({"zzzz": {}}, "there are: run, cluster"),
        ({"cluster": {"wrokers": 2}}, "unknown key 'wrokers' in [cluster]; did you mean 'workers'"),
        ({"run": {"scheme": "eysnc"}}, "did you mean 'esync'"),
        ({"run": {"scheme": "sps"}}, "did you mean"),
        ({"model": {"name": "lenett"}}, "did you mean 'lenet'"),
        ({"data": {"name": "mnsit"}}, "did you mean 'mnist'"),
        ({"data": {"partition": "unifrom"}}, "did you mean 'uniform'"),
        ({"optimizer": {"name": "adan"}}, "did you mean 'adam'"),
        ({"schedule": {"name": "cosin"}}, "did you mean 'cosine'"),
        ({"ssp": {"stalness": 3}}, "did you mean 'staleness'"),
        ({"bsp": {"staleness": 3}}, "unknown key 'staleness' in [bsp]"),
        ({"asp": {"weighting": "invers"}}, "inverse"),
        ({"workers": 4}, "workers = 4 stands outside a section; write it as workers below [cluster]"),
        ({"scheme": "asp"}, "scheme = 'asp' stands outside a section; write it as scheme below [run]"),
        ({"batch-size": 8}, "write it as batch_size below [data]"),
        ({"cluster": 4}, "outside a section"),
    ],
)
def test_what_is_unknown_is_refused_naming_the_nearest(values: Any, words: str) -> None:
    message = refusal(lambda: build(values))
    assert words in message, message


def test_what_there_is_to_choose_from_is_listed_once() -> None:
    assert refusal(lambda: build({"bsp": {"payload": "weights"}})).endswith("weights: must be one of gradient, delta")


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("cluster", "workers", "four", "a whole number"),
        ("cluster", "workers", 2.5, "a whole number"),
        ("cluster", "workers", True, "a whole number"),
        ("cluster", "workers", 0, "between 1 and"),
        ("cluster", "servers", -1, "between 0 and"),
        ("cluster", "slowdown", [1, "two"], "numbers separated by commas"),
        ("cluster", "slowdown", 3, "numbers separated by commas"),
        ("cluster", "slowdown", [0.0], "between 0.001 and"),
        ("cluster", "device", "gpu", "there are auto, cpu, cuda, cuda:N, xpu:N and mps"),
        ("cluster", "allreduce", "star", "auto, servers, ring, butterfly"),
        ("optimizer", "lr", "fast", "a number"),
        ("optimizer", "lr", math.nan, "a number"),
        ("optimizer", "lr", math.inf, "a number"),
        ("optimizer", "lr", 10**400, "a number"),
        ("optimizer", "lr", -0.1, "between 0 and"),
        ("run", "seed", 2**70, "between 0 and"),
        ("optimizer", "momentum", 1.5, "between 0 and 1"),
        ("optimizer", "nesterov", 1, "true or false"),
        ("stop", "target_accuracy", 80, "between 0 and 1"),
        ("run", "seed", -1, "between 0 and"),
        ("run", "out", 3, "a text"),
        ("run", "out", "a\0b", "a text"),
        ("ssp", "staleness", -1, "between 0 and"),
        ("ssp", "staleness", 1.5, "a whole number"),
        ("gsp", "groups", "0,1;1,2", "one group only"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_would(section: str, key: str, value: Any, words: str) -> None:
    message = refusal(lambda: build({section: {key: value}}))
    assert words in message, message
    assert key.replace("_", "-") in message, message
