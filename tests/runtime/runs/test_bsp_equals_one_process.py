"""BSP with N workers of batch b is one process with batch N b: the claim that every other number rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.config import CARRIERS
from tests.runtime.conftest import Runner
from tests.runtime.one_process import assert_same, config_for, one_process, saved

STEPS = 30  # 15 steps of 3 x 32 are an epoch of 1437 samples: the short last batch and the reshuffle are in it

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "lr": 0.1},
    "nesterov": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "adam": {"name": "adam", "lr": 0.001, "weight_decay": 0.01},
    "adamw": {"name": "adamw", "lr": 0.001, "weight_decay": 0.1},
}
WHOLE_TENSORS: dict[str, dict[str, Any]] = {
    "lars": {"name": "lars", "lr": 2.0, "momentum": 0.9, "weight_decay": 0.01, "trust": 0.02},
    "lamb": {"name": "lamb", "lr": 0.01, "weight_decay": 0.1},
}
FABRICS: dict[str, dict[str, Any]] = {
    "one server": {"servers": 1},
    "one server in slices": {"servers": 1, "cluster": {"slice_mb": 0.001}},
    "three servers": {"servers": 3},
    "two servers in slices": {"servers": 2, "cluster": {"slice_mb": 0.002}},
    "collectives": {"servers": 0},
}


def check(runner: Runner, out: Path, **settings: Any) -> None:
    config = config_for(out, steps=STEPS, **settings)
    summary = runner(config)
    assert [worker.steps for worker in summary.workers] == [STEPS] * config.cluster.workers
    assert_same(saved(config), one_process(config, STEPS))


@pytest.mark.parametrize("fabric", FABRICS)
def test_on_every_fabric(runner: Runner, out: Path, fabric: str) -> None:
    check(runner, out, workers=3, optimizer=OPTIMIZERS["nesterov"], **FABRICS[fabric])


@pytest.mark.parametrize("mean", [name for name in CARRIERS if name not in ("auto", "servers", "nccl", "mpi")])
def test_through_every_carrier(runner: Runner, out: Path, mean: str) -> None:
    check(runner, out, workers=3, servers=0, optimizer=OPTIMIZERS["nesterov"], cluster={"allreduce": mean})


@pytest.mark.parametrize("fabric", FABRICS)
def test_with_unequal_batches_it_is_the_mean_weighted_by_samples(processes: Runner, out: Path, fabric: str) -> None:
    """In batches of 48, a tenth of 1437 samples ends its epoch with an odd one every third step, the others later."""
    shares = {"partition": "fractions:0.7,0.2,0.1", "batch_size": 48}
    check(processes, out, workers=3, data=shares, optimizer=OPTIMIZERS["nesterov"], **FABRICS[fabric])


@pytest.mark.parametrize("fabric", FABRICS)
def test_with_largest_batches_of_their_own_workers_have_shares_to_match(
    threads: Runner, out: Path, fabric: str
) -> None:
    """After 8 steps each has gone through its share of 1437 samples: 862, 288 and 287."""
    own = {"workers": 3, "data": {"batch_size": 108}, "optimizer": OPTIMIZERS["nesterov"], **FABRICS[fabric]}
    cluster = {**own.pop("cluster", {}), "batch_limits": [0, 36, 36]}
    config = config_for(out, steps=STEPS, cluster=cluster, **own)
    summary = threads(config)
    samples = [worker.samples for worker in summary.workers]
    assert samples[0] > 2.9 * samples[1]
    assert [worker.steps for worker in summary.workers] == [STEPS] * 3
    assert_same(saved(config), one_process(config, STEPS))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_with_every_optimizer_in_process(threads: Runner, out: Path, optimizer: str) -> None:
    check(threads, out, servers=2, optimizer=OPTIMIZERS[optimizer])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("fabric", ["three servers", "collectives"])
def test_with_other_optimizers_live(processes: Runner, out: Path, fabric: str, optimizer: str) -> None:
    check(processes, out, optimizer=OPTIMIZERS[optimizer], **FABRICS[fabric])


@pytest.mark.parametrize("optimizer", WHOLE_TENSORS)
@pytest.mark.parametrize("fabric", ["one server", "three servers", "two servers in slices", "collectives"])
def test_with_optimizers_that_need_whole_tensors(processes: Runner, out: Path, fabric: str, optimizer: str) -> None:
    check(processes, out, optimizer=WHOLE_TENSORS[optimizer], **FABRICS[fabric])


@pytest.mark.parametrize("fabric", ["one server in slices", "collectives"])
def test_with_gradients_that_are_clipped(processes: Runner, out: Path, fabric: str) -> None:
    check(processes, out, optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.9, "clip_norm": 0.5}, **FABRICS[fabric])


@pytest.mark.parametrize("schedule", ["step", "cosine"])
def test_under_a_schedule_after_warm_up(runner: Runner, out: Path, schedule: str) -> None:
    """The clock of a schedule is the samples of all workers together, so it means the same on any number of them."""
    sections = {"name": schedule, "warmup": 0.3, "every": 0.5, "factor": 0.5, "floor": 0.1}
    check(runner, out, schedule=sections, stop={"epochs": 5.0}, optimizer=OPTIMIZERS["nesterov"])


def test_with_collectives_under_a_schedule(processes: Runner, out: Path) -> None:
    check(processes, out, servers=0, schedule={"name": "step", "warmup": 0.3, "every": 0.5, "factor": 0.5})


def test_with_a_convolutional_network(runner: Runner, out: Path) -> None:
    check(runner, out, model={"name": "lenet", "width": 0.5}, optimizer=OPTIMIZERS["sgd"], servers=3)


def test_with_one_worker(runner: Runner, out: Path) -> None:
    check(runner, out, workers=1, optimizer=OPTIMIZERS["adam"])


def test_gsp_with_one_group_is_bsp(runner: Runner, out: Path) -> None:
    check(runner, out, scheme="gsp", gsp={"groups": "0,1,2"}, workers=3, servers=2, optimizer=OPTIMIZERS["nesterov"])


def test_ssp_at_bound_zero_sees_every_sample_of_its_rounds(processes: Runner, out: Path) -> None:
    config = config_for(out, steps=STEPS, scheme="ssp", ssp={"staleness": 0}, workers=3)
    summary = processes(config)
    assert [worker.steps for worker in summary.workers] == [STEPS] * 3
    assert max(worker.staleness_max or 0 for worker in summary.workers) <= 2
