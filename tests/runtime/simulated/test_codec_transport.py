"""Codecs in virtual time: less travels, so it is there sooner, and what is learned is learned from what was decoded."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.codec import encoders
from paceline.observe.runs.summary import Summary
from tests.runtime.runs.test_codecs import USUAL, accuracy
from tests.runtime.simulated.virtual_runs import run

MODELS = {"bsp": 0.8, "ssp": 0.8, "gsp": 0.8, "dcasgd": 0.8, "esync": 0.8, "localsgd": 0.75, "easgd": 0.6}
"""The least accuracy after as many steps."""


def encoded(scheme: str, up: str, down: str = "none", *, exact_below: int = 0, **more: Any) -> Summary:
    compression = {"up": up, "down": down, "exact_below": exact_below}
    return run(scheme, compression=compression, **{"stop": {"steps": 100, "epochs": 0}, **more})


@pytest.mark.parametrize("scheme", MODELS)
@pytest.mark.parametrize("codec", ["int8", "sign", "topk(ratio=0.2)", "randomk(ratio=0.3)"])
def test_every_kind_of_scheme_learns_with_both_ways_encoded(scheme: str, codec: str) -> None:
    assert accuracy(encoded(scheme, codec, codec, optimizer={"lr": 0.2})) > MODELS[scheme]


@pytest.mark.parametrize("codec", sorted({*encoders()} - {"1bit"}))
def test_workers_that_do_not_wait_learn_from_encoded_gradients(codec: str) -> None:
    assert accuracy(encoded("asp", USUAL.get(codec, codec), optimizer={"lr": 0.1})) > 0.8


@pytest.mark.parametrize("exact_below", [0, 100])
@pytest.mark.parametrize(("up", "down"), [("topk(ratio=0.05)", "none"), ("dgc(warmup=5)", "int8"), ("sign", "sign")])
def test_timing_only_takes_as_long_and_sends_as_much_as_training_does(up: str, down: str, exact_below: int) -> None:
    real, ghost = (
        encoded("asp", up, down, timing_only=timing_only, exact_below=exact_below) for timing_only in (False, True)
    )
    for name in ("seconds", "samples", "model_length", "bytes_up", "bytes_down"):
        assert getattr(real, name) == getattr(ghost, name), name


def test_a_codec_saves_time_and_bytes() -> None:
    slow = {"on": {"workers": 3, "slowdown": [1, 1, 1], "step_ms": 1}, "stop": {"steps": 60, "epochs": 0}}
    plain = run("bsp", timing_only=True, **slow)
    coarse = encoded("bsp", "topk(ratio=0.001)", timing_only=True, **slow)
    assert coarse.seconds < plain.seconds
    assert coarse.bytes_up < plain.bytes_up / 100


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk(ratio=0.05)"])
def test_means_among_workers_are_encoded_in_virtual_time_as_well(codec: str) -> None:
    plain, real, ghost = (
        encoded("bsp", codec_or_none, on={"workers": 3, "servers": 0, "allreduce": "ring"}, timing_only=timing_only)
        for codec_or_none, timing_only in (("none", False), (codec, False), (codec, True))
    )
    assert accuracy(real) > 0.75
    for name in ("seconds", "bytes_up", "bytes_down"):
        assert getattr(real, name) == getattr(ghost, name) < getattr(plain, name), name


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = (encoded("asp", "randomk(ratio=0.1)", "sign") for _ in range(2))
    assert one == other
