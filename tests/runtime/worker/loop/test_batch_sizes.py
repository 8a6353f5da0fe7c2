"""Batches whose size the scheme says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data
from tests.runtime.worker.test_pace import weights


@pytest.mark.parametrize("servers", [1, 2])
def test_a_scheme_that_sizes_the_batches_uses_up_every_share_all_the_same(out: Path, servers: int) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, data, epochs=1 + pace.rank)

    summary, models = run_loops(out, "lbbsp", loop, servers=servers)
    assert [worker.samples for worker in summary.workers] == [30, 60, 90]
    torch.testing.assert_close(weights(models[0]), weights(models[2]))


SCHEMES = ["bsp", "asp", "lbbsp", "esync", "localsgd"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("how", ["batches", "loader", "queue"])
def test_no_batch_is_larger_than_its_workers_largest(out: Path, scheme: str, how: str) -> None:
    if how == "queue" and scheme in ("esync", "localsgd"):
        pytest.skip("no server settles its samples")
    data, sizes, seen = toy_data(), [0, 0, 0], list[torch.Tensor]()

    def loop(pace: Pace, model: nn.Module) -> None:
        partition = how if how == "queue" else "auto"
        take = pace.loader if how == "loader" else pace.batches
        for x, y in take(data, 12, epochs=1, partition=partition):
            sizes[pace.rank] = max(sizes[pace.rank], len(y))
            seen.append(x)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    summary, _ = run_loops(out, scheme, loop, cluster={"batch_limits": [0, 6, 3]})
    assert sizes[1] <= 6
    assert sizes[2] <= 3
    assert summary.samples == sum(map(len, seen))
    if scheme != "lbbsp" and how != "queue":
        assert sorted(torch.cat(seen).tolist()) == sorted(data.tensors[0].tolist()), "each sample once"


def test_in_lock_step_all_go_through_their_shares_in_as_many_steps(out: Path) -> None:
    data = toy_data(84)

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, data, batch_size=12, epochs=2)

    summary, models = run_loops(out, "bsp", loop, cluster={"batch_limits": [0, 6, 3]})
    assert [(worker.steps, worker.samples) for worker in summary.workers] == [(8, 96), (8, 48), (8, 24)]
    torch.testing.assert_close(weights(models[0]), weights(models[2]))


def test_drop_last_leaves_out_what_is_no_batch_of_each_worker(out: Path) -> None:
    data, sizes = toy_data(90), set[tuple[int, int]]()

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.loader(data, 12, epochs=1, drop_last=True):
            sizes.add((pace.rank, len(y)))
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    summary, _ = run_loops(out, "bsp", loop, cluster={"batch_limits": [0, 6, 3]})
    assert sizes == {(0, 12), (1, 6), (2, 3)}
    assert summary.samples == 84, "four times 12, 6 and 3"


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_batches_of_a_shard_are_bounded_too(out: Path, scheme: str) -> None:
    data, sizes = toy_data(60), [0, 0, 0]

    def loop(pace: Pace, model: nn.Module) -> None:
        items = [(data[i][0], data[i][1]) for i in range(60)]
        for x, y in pace.loader(pace.shard(items), 10, epochs=1):
            sizes[pace.rank] = max(sizes[pace.rank], len(y))
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    run_loops(out, scheme, loop, cluster={"batch_limits": [0, 6, 3]})
    assert sizes == [10, 6, 3]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_that_ends_after_so_many_samples_ends_after_as_many(out: Path, scheme: str) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, toy_data(), batch_size=12, epochs=None)

    stop = {"samples": 1001, "until_stopped": False}
    summary, _ = run_loops(out, scheme, loop, cluster={"batch_limits": [0, 6, 3]}, stop=stop)
    assert 1001 <= summary.samples <= 1001 + 3, "in lock-step what is left is divided evenly and rounded up"
    assert summary.reason == "samples"


def test_a_global_batch_that_the_workers_of_a_script_cannot_hold_ends_the_run_before_training(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        raise AssertionError("training has begun")

    with pytest.raises(RunFailed, match="cannot take 40 samples a round: lower --lbbsp.global-batch to 21"):
        run_loops(out, "lbbsp", loop, cluster={"batch_limits": [12, 6, 3]}, global_batch=40)
