"""A worker whose memory does not hold a whole mini-batch makes its steps in parts, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.core.trace import Decided
from paceline.engine.model.mixed_precision import BatchPart, Precision
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps.split_backward import SplitBackward, Undo, parts_of, plain_backward
from tests.runtime.own_loops import run_loops, toy_data, toy_model
from tests.runtime.worker.test_pace import weights

DATA = toy_data(96)


class SmallMemory(nn.Module):
    """A model that holds at most `most` samples: a larger batch exhausts memory in its forward or backward pass."""

    def __init__(self, most: int, *, in_backward: bool = False) -> None:
        super().__init__()
        self.net, self.most, self.in_backward = toy_model(), most, in_backward
        self.largest, self.failures = 0, 0

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.net[0](x)
        if len(x) > self.most and self.in_backward:
            hidden.register_hook(self._fail)  # the last layer has its gradient by then
        elif len(x) > self.most:
            self._fail()
        self.largest = max(self.largest, len(x))
        y: Tensor = self.net[1:](hidden)
        return y

    def _fail(self, _gradient: Tensor | None = None) -> None:
        self.failures += 1
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def train(pace: Pace, model: nn.Module, steps: int = 6, batch_size: int = 16) -> None:
    batches = pace.batches(DATA, batch_size, epochs=None)
    for _, (x, y) in zip(range(steps), batches, strict=False):
        pace.backward(lambda x, y: nn.functional.cross_entropy(model(x), y), x, y)
        pace.step()


def models_of(most: int, in_backward: bool = False) -> Any:
    """Worker 1 is the small one, by the order in which `run_loops` makes them."""
    return lambda: SmallMemory(most, in_backward=in_backward)


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("in_backward", [False, True])
def test_the_result_is_that_of_a_run_whose_memory_holds_all(tmp_path: Path, servers: int, in_backward: bool) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        assert isinstance(model, SmallMemory)
        model.most = most if pace.rank == 1 else 99
        train(pace, model)

    results = []
    for most in (99, 5):
        out = tmp_path / str(most)
        _, models = run_loops(out, "bsp", loop, workers=2, servers=servers, make_model=models_of(99, in_backward))
        results.append(weights(models[0]))
        small = models[1]
        assert isinstance(small, SmallMemory)
        assert small.largest <= (4 if most == 5 and not in_backward else 16)
        assert small.failures == (2 if most == 5 else 0), "at 16 and at 8; the next steps are made in parts at once"
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("servers", [0, 1, 2])
def test_so_it_is_where_gradients_leave_while_backward_runs(tmp_path: Path, servers: int) -> None:
    """From the first step in parts on they leave with `pace.step()`."""

    def loop(pace: Pace, model: nn.Module) -> None:
        assert isinstance(model, SmallMemory)
        for step in range(3):
            model.most = most if step and pace.rank == 1 else 99
            train(pace, model, steps=2)

    results = []
    for most in (99, 5):
        cluster = {"slice_mb": 0.00005, "overlap": "on"}
        out = tmp_path / str(most)
        _, models = run_loops(out, "bsp", loop, workers=2, servers=servers, make_model=models_of(99), cluster=cluster)
        results.append(weights(models[0]))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-6)


def test_what_has_left_already_cannot_be_made_again(out: Path) -> None:
    cluster = {"slice_mb": 0.00005, "overlap": "on"}
    with pytest.raises(RunFailed, match="OutOfMemoryError: CUDA out of memory"):
        run_loops(out, "bsp", train, workers=2, servers=1, make_model=models_of(5, True), cluster=cluster)
    assert json.loads((out / "summary.json").read_text())["reason"].startswith("failed")


def test_one_line_says_so_and_the_runs_folder_has_it(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        assert isinstance(model, SmallMemory)
        model.most = 5 if pace.rank == 1 else 99
        train(pace, model)

    run_loops(out, "asp", loop, workers=2, make_model=models_of(99))
    found = [(r.party, r.rank, r.verdict, r.reason) for r in read_trace(out / "trace.jsonl") if isinstance(r, Decided)]
    verdict = "makes its steps in parts of at most 4 samples"
    assert [each for each in found if each[2] == verdict] == [("worker 1", 1, verdict, "out of memory at 8 samples")]
    assert json.loads((out / "part_sizes.json").read_text()) == {"1": 4}


def test_a_run_that_goes_on_begins_with_it(out: Path) -> None:
    failures: dict[int, int] = {}

    def loop(pace: Pace, model: nn.Module) -> None:
        assert isinstance(model, SmallMemory)
        model.most = 5 if pace.rank == 1 else 99
        train(pace, model)
        failures[pace.rank] = model.failures

    for resume, expected in (("never", 2), ("auto", 0), ("never", 2)):
        run_loops(out, "bsp", loop, workers=2, make_model=models_of(99), checkpoint={"resume": resume, "every": 5.0})
        assert failures == {0: 0, 1: expected}


def test_where_a_single_sample_does_not_fit_the_error_is_the_allocators(out: Path) -> None:
    with pytest.raises(RunFailed, match="OutOfMemoryError: CUDA out of memory"):
        run_loops(out, "bsp", train, workers=2, make_model=models_of(0))


def test_gradients_of_earlier_batches_are_not_dropped(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        loss_of = lambda x, y: nn.functional.cross_entropy(model(x), y)  # noqa: E731
        batches = pace.batches(DATA, 4, epochs=None)
        pace.backward(loss_of, *next(batches))
        before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        assert isinstance(model, SmallMemory)
        model.most = 2
        with pytest.raises(torch.OutOfMemoryError) as caught:
            pace.backward(loss_of, *next(batches))
        assert "make a pace.step() after each pace.backward()" in caught.value.__notes__[0]
        torch.testing.assert_close([p.grad for p in model.parameters()], before)
        pace.step()

    run_loops(out, "bsp", loop, workers=1, make_model=models_of(99))


def test_nothing_else_is_tried_again(out: Path) -> None:
    calls = []

    def loop(pace: Pace, model: nn.Module) -> None:
        def loss_of(x: Tensor, y: Tensor) -> Tensor:
            calls.append(len(x))
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

        pace.backward(loss_of, *next(pace.batches(DATA, 8)))

    with pytest.raises(RunFailed, match="mat1 and mat2"):
        run_loops(out, "bsp", loop, workers=1)
    assert calls == [8]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried ..."),
        RuntimeError("MPS backend out of memory (MPS allocated: 18.00 GB)"),
        torch.OutOfMemoryError("CUDA out of memory."),
    ],
)
def test_allocators_of_every_device_are_understood(error: Exception) -> None:
    model, sizes, heard = nn.Linear(2, 1), list[int](), list[tuple[int, int]]()

    def loss_of(x: Tensor) -> Tensor:
        sizes.append(len(x))
        if len(x) > 3:
            raise error
        return model(x).square().mean()  # type: ignore[no-any-return]

    split = splitting(model, heard)
    x = torch.randn(6, 2)
    loss = split.backward(loss_of, (x,), plain_backward)
    assert (sizes, heard) == ([6, 3, 3], [(3, 6)])
    torch.testing.assert_close(loss, model(x).square().mean())
    split.backward(loss_of, (x,), plain_backward)
    assert (sizes[3:], len(heard)) == ([3, 3], 1), "no line for each step"


def splitting(model: nn.Module, heard: list[tuple[int, int]]) -> SplitBackward:
    return SplitBackward(
        0,
        torch.device("cpu"),
        has_gradient=lambda: False,
        undo=Undo(lambda adds: "", model.zero_grad),
        split=lambda: None,
        report=lambda size, exhausted: heard.append((size, exhausted)),
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_batches_of_any_form_and_precision_are_cut_by_their_samples(precision: str) -> None:
    model = nn.Linear(2, 1)
    x, mask, number = torch.randn(7, 2), torch.ones(7, 1), torch.tensor(2.0)

    def loss_of(batch: dict[str, Tensor] | Tensor, mask: Tensor, number: Tensor) -> Tensor:
        inputs = batch["x"] if isinstance(batch, dict) else batch
        return (model(inputs) * mask * number).square().mean()  # type: ignore[no-any-return]

    loss_of({"x": x}, mask, number).backward()
    wanted = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    plain_backward(loss_of, {"x": x}, mask, number, parts=parts_of(7, 3))
    torch.testing.assert_close([p.grad for p in model.parameters()], wanted)
    model.zero_grad()
    runs = Precision(precision, model, "cpu")
    runs.backward(lambda x, mask: loss_of(x, mask, number), x, mask, parts=parts_of(7, 3))
    close = {"rtol": 0.05, "atol": 0.05} if precision == "bf16" else {}
    torch.testing.assert_close([p.grad for p in model.parameters()], wanted, **close)


@pytest.mark.parametrize(
    ("samples", "largest", "sizes"),
    [(7, 3, [2, 2, 3]), (96, 48, [48, 48]), (33, 32, [16, 17]), (5, 8, [5]), (3, 1, [1] * 3)],
)
def test_parts_are_as_equal_as_can_be(samples: int, largest: int, sizes: Sequence[int]) -> None:
    parts = parts_of(samples, largest)
    rows = torch.arange(samples)
    assert [len(rows[part.rows]) for part in parts] == sizes
    assert torch.cat([rows[part.rows] for part in parts]).tolist() == rows.tolist()
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    assert all(isinstance(part, BatchPart) for part in parts)
