"""A loop of one's own: `Pace` among several workers, as threads."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.core.errors import PeerLost
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


@pytest.mark.parametrize("scheme", OWN_BATCHES)
@pytest.mark.parametrize("servers", [1, 2])
def test_uneven_numbers_of_batches_hang_nobody(out: Path, scheme: str, servers: int) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, data, epochs=1 + 3 * pace.rank)

    summary, models = run_loops(out, scheme, loop, servers=servers)
    assert [worker.steps for worker in summary.workers] == [4, 16, 28]
    torch.testing.assert_close(weights(models[0]), weights(models[2]))


@pytest.mark.parametrize("servers", [1, 2])
def test_a_scheme_that_sizes_the_batches_uses_up_every_share_all_the_same(out: Path, servers: int) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, data, epochs=1 + pace.rank)

    summary, models = run_loops(out, "lbbsp", loop, servers=servers)
    assert [worker.samples for worker in summary.workers] == [30, 60, 90]
    torch.testing.assert_close(weights(models[0]), weights(models[2]))


@pytest.mark.parametrize("scheme", ["bsp", "esync", "ssp"])
def test_one_that_never_steps_hangs_nobody(out: Path, scheme: str) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        if pace.rank != 1:
            plain_steps(pace, model, data)

    summary, _ = run_loops(out, scheme, loop)
    assert [worker.steps for worker in summary.workers] == [8, 0, 8]


def test_a_worker_is_at_its_mini_batch_while_it_has_one_and_at_no_other_time(out: Path) -> None:
    seen: list[tuple[bool, bool]] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        def at_it() -> bool:
            return pace._worker.progress().seconds_at_batch > 0

        for x, y in pace.batches(toy_data(), 8, epochs=2):
            nn.functional.cross_entropy(model(x), y).backward()
            before = at_it()
            pace.step()
            seen.append((before, at_it()))
            if pace.steps == 2:
                break
        for _ in pace.batches(toy_data(), 8, epochs=2):
            break  # it looks at something else, for as long as it likes
        seen.append((True, at_it()))

    run_loops(out, "asp", loop, workers=1)
    assert seen == [(True, False)] * 3


@pytest.mark.parametrize("scheme", ["bsp", "asp", "easgd"])
def test_one_that_is_told_to_go_hands_over_its_step_and_nobody_waits_for_it(out: Path, scheme: str) -> None:
    home: list[int] = []
    gone = threading.Event()

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 8, epochs=2, partition="uniform"):
            nn.functional.cross_entropy(model(x), y).backward()
            if pace.rank == 1 and pace.steps == 1:
                pace._worker.run.session.notice = "SIGTERM"  # in the middle of its second step, as by a signal
            if pace.rank != 1 and pace.steps == 7:
                assert gone.wait(10.0), "the others are to be there still when it goes"
            pace.step()
        if pace.rank == 1:
            pace.close()
            home.append(pace.steps)
            gone.set()

    summary, _ = run_loops(out, scheme, loop)
    assert home == [2]
    assert [(fault.party, fault.event, fault.reason) for fault in summary.faults] == [
        ("worker 1", "drained", "SIGTERM; 2 of 3 continue")
    ]
    assert [worker.steps for worker in summary.workers] == [8, 2, 8]


@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_shares_with_nothing_for_one_hang_nobody(out: Path, scheme: str) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(data, 8, epochs=2, partition="fractions:5,0,1"):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    summary, _ = run_loops(out, scheme, loop)
    assert [worker.samples for worker in summary.workers] == [150, 0, 30]


def test_everybody_starts_from_the_weights_of_worker_0(out: Path) -> None:
    """The launcher hands them the same ones; a thread of its own spoils those of the others before it joins."""
    data, started = toy_data(), {}

    def loop(pace: Pace, model: nn.Module) -> None:
        started[pace.rank] = weights(model).clone()
        plain_steps(pace, model, data, epochs=1)

    run_loops(out, "bsp", loop)
    assert torch.equal(started[0], started[1])
    assert torch.equal(started[0], weights(toy_model()))


def test_every_sample_is_in_one_share_exactly(out: Path) -> None:
    data = toy_data(91)
    seen: dict[int, list[torch.Tensor]] = {0: [], 1: [], 2: []}

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(data, 8):
            seen[pace.rank].append(x)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    run_loops(out, "asp", loop)
    rows = torch.cat([x for batches in seen.values() for x in batches])
    assert sorted(rows.tolist()) == sorted(data.tensors[0].tolist())


def test_a_loop_without_pace_batches_tells_the_samples_itself(out: Path) -> None:
    x, y = toy_data().tensors

    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(3):
            nn.functional.cross_entropy(model(x[:7]), y[:7]).backward()
            pace.step(samples=7)

    summary, _ = run_loops(out, "bsp", loop)
    assert [worker.samples for worker in summary.workers] == [21] * 3


def test_an_error_in_one_loop_ends_the_run_and_is_named(out: Path) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        for step, (x, y) in enumerate(pace.batches(data, 8, epochs=None)):
            if pace.rank == 1 and step == 3:
                raise ZeroDivisionError("the user's own")
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    with pytest.raises(RunFailed) as caught:
        run_loops(out, "bsp", loop)
    first = str(caught.value).splitlines()[0]
    assert "worker 1" in first
    assert "ZeroDivisionError: the user's own" in first


def leaves_by_exit(code: int) -> Callable[[Pace, nn.Module], None]:
    def loop(pace: Pace, model: nn.Module) -> None:
        with contextlib.suppress(SystemExit), pace:
            for x, y in pace.batches(toy_data(), 8, epochs=2, partition="uniform"):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()
                if pace.rank == 1 and pace.steps == 2:
                    sys.exit(code)

    return loop


def test_system_exit_out_of_the_context_is_a_good_end_with_code_0_and_a_failure_with_another(out: Path) -> None:
    summary, _ = run_loops(out / "good", "asp", leaves_by_exit(0))
    assert [worker.steps for worker in summary.workers] == [8, 2, 8]
    with pytest.raises(RunFailed, match=r"worker 1: SystemExit: 3"):
        run_loops(out / "bad", "asp", leaves_by_exit(3))


@pytest.mark.parametrize("scheme", ["adpsgd", "eamsgd"])
def test_the_schedule_of_a_worker_that_updates_alone_counts_what_all_have_seen(out: Path, scheme: str) -> None:
    told: list[int] = []
    deadline = time.monotonic() + 60

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 8, epochs=None):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            if pace._worker.model.update.samples_seen > 8 * pace.steps:
                told.append(pace.rank)
                return
            assert time.monotonic() < deadline, "it counts its own alone"

    run_loops(out, scheme, loop, workers=2)
    assert sorted(told) == [0, 1]


def test_a_step_that_was_under_way_when_the_run_failed_does_not_go_on_alone(out: Path) -> None:
    """A loop that asks nobody whether it may go on would train to its end, with weights that stay as they are."""
    raised: list[BaseException] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 8, epochs=None):
            nn.functional.cross_entropy(model(x), y).backward()
            if pace.rank == 1:
                raise ZeroDivisionError
            assert pace._worker.run.session.over.wait(30)
            with pytest.raises(PeerLost) as caught:
                pace.step()
            raised.append(caught.value)
            raise caught.value

    with pytest.raises(RunFailed):
        run_loops(out, "asp", loop)
    assert "the coordinator is gone" in str(raised[0])


def test_workers_with_unlike_models_are_refused(out: Path) -> None:
    import paceline.runtime.worker.loop.joined_run as module

    flat = module.FlatModel
    turns = iter(range(3))

    class Uneven(flat):  # type: ignore[misc, valid-type]
        def fingerprint(self) -> str:
            return super().fingerprint() + str(next(turns))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FlatModel", Uneven)
        with pytest.raises(RunFailed, match="trains another model than worker 0"):
            run_loops(out, "bsp", lambda pace, model: None)


@pytest.mark.parametrize(
    ("devices", "own"),
    [(("cuda:0", "cuda:1"), True), (("cuda:0", "cuda:0"), False), (("cuda:0", "cpu"), False), ((), False)],
)
def test_nccl_is_taken_when_every_worker_has_a_gpu_of_its_own(devices: tuple[str, ...], own: bool) -> None:
    assert own_gpus(devices) is own
