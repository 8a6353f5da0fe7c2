"""Cells of a notebook that are run again: a new `join` of a process that is alone ends the one before it."""

from __future__ import annotations

import code
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError
from paceline.core.scheme import names
from paceline.launch.local.environment import PREFIX
from paceline.runtime.worker.lifecycle import WorkerLifecycle
from tests.runtime.own_loops import toy_data, toy_model

OBJECTS = """
model = toy_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
"""
LOOP = """
pace = paceline.join(model, optimizer, scheme=scheme)
for n, (x, y) in enumerate(pace.batches(toy_data(), 8)):
    seen.append((x, y))
    if n == stops_at:
        raise interruption
    nn.functional.cross_entropy(model(x), y).backward()
    pace.step()
pace.close()
"""
BATCHES = 12


class Notebook(code.InteractiveInterpreter):
    """Runs cells in one process, and survives their exceptions, as a REPL and Jupyter do."""

    def __init__(self, scheme: str = "bsp") -> None:
        known = {"torch": torch, "nn": nn, "paceline": paceline, "toy_model": toy_model, "toy_data": toy_data}
        self.values: dict[str, Any] = {**known, "scheme": scheme, "stops_at": None, "seen": []}
        super().__init__(self.values)
        self.errors: list[type[BaseException]] = []

    def cell(self, source: str, **values: Any) -> None:
        self.values.update(values)
        self.runcode(compile(source, "cell", "exec"))

    def showtraceback(self) -> None:
        kind, sys.last_value, sys.last_traceback = sys.exc_info()  # as a REPL does
        assert kind is not None
        self.errors.append(kind)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher; what REPLs keep of an exception is gone afterwards, and so are the threads of the runs."""
    monkeypatch.delenv(f"{PREFIX}COORDINATOR", raising=False)
    before = set(threading.enumerate())
    yield
    forget()
    for thread in set(threading.enumerate()) - before:
        thread.join(60.0)
        assert not thread.is_alive(), thread.name


def forget() -> None:
    for name in ("last_value", "last_type", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)


def plain(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> nn.Module:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def assert_same(model: nn.Module, other: nn.Module) -> None:
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_a_cell_that_was_interrupted_trains_new_objects_from_the_beginning(
    scheme: str, interruption: type[BaseException]
) -> None:
    notebook = Notebook(scheme)
    notebook.cell(OBJECTS + LOOP, stops_at=3, interruption=interruption)
    notebook.cell(OBJECTS + LOOP, stops_at=None, seen=(second := []))
    assert notebook.errors == [interruption]
    assert len(second) == BATCHES
    assert_same(notebook.values["model"], plain(second))


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ZeroDivisionError])
def test_the_same_objects_go_on_with_the_weights_that_they_have(interruption: type[BaseException]) -> None:
    notebook = Notebook("bsp")
    notebook.cell(OBJECTS)
    notebook.cell(LOOP, stops_at=3, interruption=interruption, seen=(first := []))
    notebook.cell(LOOP, stops_at=None, seen=(second := []))
    assert notebook.errors == [interruption]
    assert_same(notebook.values["model"], plain([*first[:3], *second]))


def test_the_optimizer_that_the_earlier_run_gave_stands_for_the_users_own() -> None:
    notebook = Notebook("bsp")
    notebook.cell(OBJECTS)
    loop = LOOP.replace("\nfor", "\noptimizer = pace.optimizer\nfor").replace("pace.step()", "optimizer.step()")
    notebook.cell(loop, stops_at=3, interruption=KeyboardInterrupt, seen=(first := []))
    notebook.cell(loop, stops_at=None, seen=(second := []))
    assert notebook.errors == [KeyboardInterrupt]
    assert_same(notebook.values["model"], plain([*first[:3], *second]))


@pytest.mark.parametrize("scheme", sorted(names()))
def test_under_every_scheme_a_cell_may_be_run_again_with_the_same_objects_and_with_new_ones(scheme: str) -> None:
    notebook = Notebook(scheme)
    notebook.cell(OBJECTS)
    for again in (LOOP, LOOP, OBJECTS + LOOP):
        notebook.cell(again, stops_at=5, interruption=KeyboardInterrupt)
    notebook.cell(LOOP, stops_at=None)
    assert notebook.errors == [KeyboardInterrupt] * 3
    assert notebook.values["pace"].total_samples == 90


@pytest.mark.parametrize("scheme", ["bsp", "asp", "diloco"])
def test_weights_that_are_loaded_before_the_new_join_are_those_that_it_trains(scheme: str) -> None:
    notebook = Notebook(scheme)
    notebook.cell(OBJECTS + LOOP, stops_at=3, interruption=KeyboardInterrupt)
    notebook.cell("model.load_state_dict(toy_model().state_dict())\npace = paceline.join(model, optimizer, 'bsp')")
    assert_same(notebook.values["model"], toy_model())
    assert notebook.errors == [KeyboardInterrupt]
    notebook.cell("pace.close()")


def test_the_earlier_run_holds_its_objects_no_more_and_its_steps_are_an_error() -> None:
    notebook = Notebook("asp")
    notebook.cell(OBJECTS + LOOP, stops_at=3, interruption=KeyboardInterrupt)
    earlier, model = notebook.values["pace"], weakref.ref(notebook.values["model"])
    notebook.cell("nn.functional.cross_entropy(model(x), y).backward()\n" + OBJECTS + LOOP, stops_at=None)
    assert earlier.over
    with pytest.raises(ConfigError, match=r"^this run ended when paceline\.join was called again in this process"):
        earlier.step()
    del earlier
    forget()
    gc.collect()
    assert model() is None


def test_the_optimizer_is_the_loops_own_after_a_join_that_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook("bsp")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(WorkerLifecycle, "join", interrupted)
        notebook.cell(OBJECTS + LOOP)
    notebook.cell("optimizer.step()")
    notebook.cell(LOOP)
    assert notebook.errors == [KeyboardInterrupt]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a generator that ends is interrupted
@pytest.mark.parametrize("scheme", ["bsp", "asp", "diloco"])
def test_a_step_may_be_interrupted_anywhere(scheme: str) -> None:
    """Ctrl-C comes between any two calls of functions; here every so many of them, in the third step."""
    notebook, at, calls, length = Notebook(scheme), 0, 0, 0

    def interrupts(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += frame.f_code.co_name != "__del__"  # whose exceptions Python prints and ignores
        if calls == at:
            calls += 1
            raise KeyboardInterrupt

    def stepping(pace: paceline.Pace) -> None:
        nonlocal calls, length
        third, calls = pace.steps == 2, 0
        sys.settrace(interrupts if third else None)
        try:
            pace.step()
        finally:
            sys.settrace(None)
        length = calls if third else length

    loop = LOOP.replace("pace.step()", "stepping(pace)")
    notebook.cell(OBJECTS + loop, stepping=stepping)
    assert not notebook.errors
    assert length > 100
    for at in range(1, length, 1 + length // 20):
        notebook.errors.clear()
        notebook.cell(loop)
        # torch's optimizers switch gradients off and on again. Interrupted between the two, they leave them off.
        torch.set_grad_enabled(True)
        assert set(notebook.errors) <= {KeyboardInterrupt}, at  # the step may be shorter than the one that was counted
        notebook.cell("assert all(bool(p.isfinite().all()) for p in model.parameters())")
    at = 0
    notebook.errors.clear()
    notebook.cell(loop)
    assert not notebook.errors
