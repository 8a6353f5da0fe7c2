"""Runs whose vectors are encoded: they learn, they send less, and where nothing is lost they are what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from paceline.codec import encoders
from paceline.core.errors import ConfigError
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent, make_supervisor
from paceline.observe.runs.summary import Summary
from tests.runtime.conftest import Runner, in_threads
from tests.runtime.one_process import assert_same, config_for, one_process, saved

USUAL = {
    "2bit": "2bit(threshold=0.02)",
    "1bit": "1bit(threshold=0)",
    "topk": "topk(ratio=0.05)",
    "dgc": "dgc(ratio=0.05, momentum=0.5, warmup=20)",
    "randomk": "randomk(ratio=0.2)",
}
"""For a model of 2,410 parameters and mean gradients, where the default would take long to learn."""
SMALLER = {
    "fp16": 1.9,
    "bf16": 1.9,
    "int8": 3.5,
    "2bit": 12,
    "1bit": 20,
    "sign": 20,
    "topk": 8,
    "dgc": 6,
    "randomk": 4,
    "sparse2bit": 25,
}
"""Than without a codec, at least; the initial weights travel as they are, and in some runs a few whole models more."""
STEPS, MEAN_STEPS = 100, 60


class Plain(NamedTuple):
    """A run without a codec: who carries its means, its settings, how it ended."""

    mean: str
    settings: dict[str, Any]
    summary: Summary


def run(runner: Runner, out: Path, up: str, down: str = "none", *, steps: int = STEPS, **sections: Any) -> Summary:
    compression = {"up": up, "down": down, "exact_below": 0}
    sections = {"workers": 3, "optimizer": {"lr": 0.2}, **sections}
    return runner(config_for(out, steps=steps, compression=compression, **sections))


def accuracy(summary: Summary) -> float:
    assert summary.test_accuracy is not None
    return summary.test_accuracy


@pytest.fixture(scope="module")
def plain_bytes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """That three workers send."""
    return in_threads(config_for(tmp_path_factory.mktemp("plain") / "run", workers=3, steps=STEPS)).bytes_up


@pytest.fixture(scope="module", params=["ring", "gloo"])
def plain(request: pytest.FixtureRequest, host: LocalHost, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """A run of two workers without a codec, whose means go this way, with which those under each codec are compared."""
    settings: dict[str, Any] = {"servers": 0, "cluster": {"allreduce": request.param}, "workers": 2}
    config = config_for(tmp_path_factory.mktemp("plain") / "run", steps=MEAN_STEPS, **settings)
    return Plain(request.param, settings, make_supervisor(config, host.launcher(), Silent()).run())


@pytest.mark.parametrize("codec", sorted({*encoders()} - {"1bit"}))
def test_a_model_learns_from_encoded_gradients(threads: Runner, out: Path, codec: str, plain_bytes: int) -> None:
    summary = run(threads, out, USUAL.get(codec, codec), scheme="bsp")
    assert accuracy(summary) > 0.8
    # The evaluator reads each worker's model when training is over; a worker that leaves late counts that.
    last_models = 3 * 4 * summary.model_length
    assert summary.bytes_up < plain_bytes / SMALLER[codec] + last_models


def test_a_model_learns_from_mxnets_one_bit_at_a_small_rate(threads: Runner, out: Path, plain_bytes: int) -> None:
    """Every weight moves by a whole learning rate in every step."""
    summary = run(threads, out, USUAL["1bit"], scheme="asp", steps=3 * STEPS, optimizer={"lr": 0.03})
    assert accuracy(summary) > 0.8
    assert summary.bytes_up / 3 < plain_bytes / SMALLER["1bit"]


@pytest.mark.parametrize(
    ("scheme", "up", "down"),
    [
        ("asp", "sign", "sign"),
        ("asp", "bf16", "topk(ratio=0.2)"),
        ("esync", "topk(ratio=0.2)", "randomk(ratio=0.3)"),
        ("esync", "sign", "int8"),
        ("easgd", "int8", "sign"),
        ("adpsgd", "topk(ratio=0.2)", "none"),
        ("gosgd", "sign", "none"),
    ],
)
def test_a_model_learns_where_all_that_travels_is_encoded(
    threads: Runner, out: Path, scheme: str, up: str, down: str
) -> None:
    """Gradients, deltas, means, models; to servers, from servers, from worker to worker."""
    assert accuracy(run(threads, out, up, down, scheme=scheme)) > 0.7


@pytest.mark.parametrize(("up", "down"), [("none", "fp16"), ("2bit(threshold=0.02)", "sign")])
def test_between_processes_bytes_are_saved_at_the_socket(processes: Runner, out: Path, up: str, down: str) -> None:
    plain = processes(config_for(out, steps=STEPS))
    encoded = run(processes, out.with_name("encoded"), up, down, workers=2)
    assert accuracy(encoded) > 0.7
    assert encoded.bytes_down < plain.bytes_down / 1.5
    assert (encoded.bytes_up < plain.bytes_up / 3) == (up != "none")


@pytest.mark.parametrize("cluster", [{}, {"slice_mb": 0.001}])
def test_what_is_shorter_than_the_limit_is_exact(threads: Runner, out: Path, cluster: dict[str, Any]) -> None:
    """So that it is one process again, as without a codec."""
    compression = {"up": "sign", "down": "topk", "exact_below": 3000}
    config = config_for(out, steps=20, servers=2, compression=compression, cluster=cluster)
    threads(config)
    assert_same(saved(config), one_process(config, 20))


@pytest.mark.parametrize(
    ("scheme", "servers", "mean"),
    [("esync", 1, "servers"), ("bsp", 0, "ring"), ("bsp", 0, "gloo"), ("localsgd", 0, "auto")],
)
def test_means_by_their_factors_are_carried_by_anybody(
    processes: Runner, out: Path, scheme: str, servers: int, mean: str
) -> None:
    settings: dict[str, Any] = {"scheme": scheme, "servers": servers, "cluster": {"allreduce": mean}}
    summary = run(processes, out, "powersgd(rank=4)", steps=STEPS, **settings)
    assert accuracy(summary) > 0.75


@pytest.mark.parametrize("mean", ["ring", "gloo"])
def test_factors_are_less_than_the_mean(processes: Runner, out: Path, mean: str) -> None:
    settings: dict[str, Any] = {"servers": 0, "cluster": {"allreduce": mean}, "workers": 2, "model": {"width": 2.0}}
    plain = processes(config_for(out, steps=20, **settings))
    factored = run(processes, out.with_name("factored"), "powersgd(rank=1)", steps=20, **settings)
    assert factored.bytes_up < plain.bytes_up / 3


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk(ratio=0.05)", "dgc(ratio=0.05, momentum=0.5, warmup=20)"])
def test_means_among_workers_are_encoded_as_well(processes: Runner, out: Path, plain: Plain, codec: str) -> None:
    encoded = run(processes, out, codec, steps=MEAN_STEPS, **plain.settings)
    assert accuracy(encoded) > 0.3
    if plain.mean == "gloo":  # else vectors pass by shared memory, unless they are encoded
        assert encoded.bytes_up < plain.summary.bytes_up / 1.5


def test_bsp_over_a_ring_in_bf16_is_nearly_one_process(threads: Runner, out: Path) -> None:
    config = config_for(out, steps=20, servers=0, workers=3, compression={"up": "bf16", "exact_below": 0})
    threads(config)
    for name, tensor in one_process(config, 20).items():
        torch.testing.assert_close(saved(config)[name], tensor, rtol=0.02, atol=0.005)


def test_biases_travel_as_they_are(processes: Runner, out: Path) -> None:
    """And the weights between them do not, so that few bytes do: with reports, which are as many as the run is long."""
    plain = processes(config_for(out, steps=STEPS))
    settings: dict[str, Any] = {"compression": {"up": "topk(ratio=0.01)", "exact_below": 100}, "optimizer": {"lr": 0.2}}
    adaptive = processes(config_for(out.with_name("adaptive"), steps=STEPS, **settings))
    assert adaptive.bytes_up < plain.bytes_up / 5
    assert accuracy(adaptive) > 0.5


WEIGHTS = (
    "weights travel that way under {}, and {} is for sums such as gradients; take fp16 or bf16 or int8 or topk or sign"
)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"compression": {"up": "topkk"}}, "--codec topkk: unknown codec 'topkk'; did you mean 'topk'?"),
        ({"compression": {"down": "2bit"}}, f"--codec-down 2bit: {WEIGHTS.format('bsp', '2bit')}"),
        ({"compression": {"up": "1bit"}, "scheme": "easgd"}, f"--codec 1bit: {WEIGHTS.format('easgd', '1bit')}"),
        (
            {"compression": {"up": "dgc"}, "optimizer": {"momentum": 0.9}},
            "codec dgc has a momentum of its own, and --momentum 0.9 would count twice: give --momentum 0, or write "
            "dgc(momentum=0)",
        ),
        (
            {"compression": {"up": "dgc"}, "scheme": "localsgd"},
            "codec dgc corrects the momentum of gradients, and this scheme sends what local steps changed: take topk, "
            "or write dgc(momentum=0)",
        ),
        (
            {"compression": {"down": "fp16"}, "scheme": "gosgd", "servers": 0},
            "--codec-down fp16: no server sends anything here; leave it out",
        ),
        (
            {"compression": {"up": "powersgd"}},
            "--codec powersgd: powersgd factors means over the workers, and bsp takes none here; take topk or sign; or "
            "--servers 0",
        ),
        (
            {"compression": {"down": "powersgd"}, "scheme": "esync"},
            "--codec-down powersgd: powersgd is for what workers send; give --codec powersgd",
        ),
        (
            {"compression": {"down": "fp16"}, "scheme": "esync", "cluster": {"allreduce": "ring"}},
            "--codec-down fp16: the workers carry the means of esync themselves, and no server sends anything; leave "
            "it out, or give --servers 1 or more and leave out --allreduce",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_way_out(out: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_for(out, steps=1, **sections)
    assert str(refused.value) == message
