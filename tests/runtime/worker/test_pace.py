"""A loop of one's own: `Pace` among several workers, as threads."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.core.scheme import names
from paceline.runtime.collectives.choice import own_gpus
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data, toy_model


def weights(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


OWN_BATCHES = [name for name in names() if name != "lbbsp"]
"""The schemes that leave it to the loop how many samples a batch has, so that it is known how many there are."""


SHORT = {
    "slowmo": {"tau": 2},
    "easgd": {"tau": 2},
    "eamsgd": {"tau": 2},
    "diloco": {"h": 2},
    "asyncdiloco": {"h": 2},
    "sparseloco": {"h": 2},
    "muloco": {"h": 2},
    "noloco": {"h": 2},
    "tiers": {"outer": "asyncdiloco(h=2)"},
    "halos": {"h": 1, "k": 1},
}
"""Rounds that fit into eight steps, where those by default do not."""


@pytest.mark.parametrize("scheme", OWN_BATCHES)
def test_when_all_are_done_all_have_the_same_trained_model(out: Path, scheme: str) -> None:
    data, steps = toy_data(), {}

    def loop(pace: Pace, model: nn.Module) -> None:
        steps[pace.rank] = plain_steps(pace, model, data)

    summary, models = run_loops(out, scheme, loop, **SHORT.get(scheme, {}))
    assert steps == {0: 8, 1: 8, 2: 8}  # 30 samples each in batches of 8, twice
    assert [(worker.steps, worker.samples) for worker in summary.workers] == [(8, 60)] * 3
    assert not torch.equal(weights(models[0]), weights(toy_model()))
    for rank in (1, 2):
        torch.testing.assert_close(weights(models[rank]), weights(models[0]))


@pytest.mark.parametrize("scheme", ["bsp", "esync", "ssp"])
def test_one_that_never_steps_hangs_nobody(out: Path, scheme: str) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        if pace.rank != 1:
            plain_steps(pace, model, data)

    summary, _ = run_loops(out, scheme, loop)
    steps = [worker.steps for worker in summary.workers]
    assert (steps[1], sum(steps)) == (0, 24), "the others train its share"


def fails_on(ranks: tuple[int, ...]) -> Callable[[Pace, nn.Module], None]:
    def loop(pace: Pace, model: nn.Module) -> None:
        for step, (x, y) in enumerate(pace.batches(toy_data(), 8, epochs=4)):
            if pace.rank in ranks and step == 3:
                raise ZeroDivisionError("the user's own")
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    return loop


def test_an_error_in_all_loops_fails_the_run_and_is_named(out: Path) -> None:
    with pytest.raises(RunFailed) as caught:
        run_loops(out, "bsp", fails_on((0, 1, 2)))
    assert re.match(r"worker [012]: ZeroDivisionError: the user's own", str(caught.value))


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd", "gosgd"])
def test_an_error_in_one_loop_is_the_loss_of_its_worker(out: Path, scheme: str) -> None:
    summary, _ = run_loops(out, scheme, fails_on((1,)), cluster={"restarts": 0})
    assert summary.reason in ("epochs", "every worker was done")
    rows = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
    lost = [(row["party"], row["reason"]) for row in rows if row.get("event") == "lost"]
    assert lost == [("worker 1", "worker 1: ZeroDivisionError: the user's own; 2 of 3 continue")]


def test_an_error_in_the_last_loop_ends_the_run_with_the_model_of_the_others(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for step, (x, y) in enumerate(pace.batches(toy_data(), 8, epochs=2)):
            if pace.rank == 1 and step == 1:
                until = time.monotonic() + 20.0
                while pace._worker.run.session.departed != {0, 2} and time.monotonic() < until:
                    time.sleep(0.001)
                raise ZeroDivisionError("the user's own")
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    summary, models = run_loops(out, "asp", loop, cluster={"restarts": 0})
    assert summary.reason == "every worker was done"
    torch.testing.assert_close(weights(models[0]), weights(models[2]))
    rows = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
    assert [row["party"] for row in rows if row.get("event") == "lost"] == ["worker 1"]


def test_an_error_of_one_fails_the_run_where_workers_carry_means_among_themselves(out: Path) -> None:
    with pytest.raises(RunFailed, match="worker 1: ZeroDivisionError: the user's own"):
        run_loops(out, "bsp", fails_on((1,)), servers=0, cluster={"allreduce": "ring"})


def leaves_by_exit(code: int) -> Callable[[Pace, nn.Module], None]:
    others_have_begun = threading.Barrier(3)  # worker 0 waits for what others leave only of shares that were begun

    def loop(pace: Pace, model: nn.Module) -> None:
        with contextlib.suppress(SystemExit), pace:
            if pace.rank == 0:
                others_have_begun.wait(20)
            for x, y in pace.batches(toy_data(), 8, epochs=2, partition="uniform"):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()
                if pace.rank > 0 and pace.steps == 2:
                    others_have_begun.wait(20)
                    sys.exit(code)

    return loop


def test_system_exit_out_of_the_context_is_a_good_end_with_code_0_and_a_failure_with_another(out: Path) -> None:
    summary, _ = run_loops(out / "good", "asp", leaves_by_exit(0))
    steps = [worker.steps for worker in summary.workers]
    assert (steps[1:], sum(steps)) == ([2, 2], 24), "worker 0 trains the rest of their shares"
    with pytest.raises(RunFailed, match=r"worker [12]: SystemExit: 3"):
        run_loops(out / "bad", "asp", leaves_by_exit(3))


@pytest.mark.parametrize(
    ("devices", "own"),
    [(("cuda:0", "cuda:1"), True), (("cuda:0", "cuda:0"), False), (("cuda:0", "cpu"), False), ((), False)],
)
def test_nccl_is_taken_when_every_worker_has_a_gpu_of_its_own(devices: tuple[str, ...], own: bool) -> None:
    assert own_gpus(devices) is own
