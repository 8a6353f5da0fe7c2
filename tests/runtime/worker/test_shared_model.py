"""The model of all workers, as one of them sees it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data, toy_model
from tests.runtime.worker.test_life_in_the_loop import vector

DATA = toy_data()


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "easgd", "localsgd", "gosgd"])
@pytest.mark.parametrize("servers", [0, 1])
def test_the_shared_model_is_that_of_all_and_the_workers_own_is_back_afterwards(
    out: Path, scheme: str, servers: int
) -> None:
    if servers == 0 and scheme in ("asp", "easgd"):
        pytest.skip("it needs a server")
    shared: dict[int, torch.Tensor] = {}
    together = threading.Barrier(2, timeout=60.0)

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, 8, epochs=3):
            if pace.steps == 0:
                together.wait()  # else one might have trained everything before the other begins
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            own = vector(model)
            with pace.shared_model() as of_all:
                assert of_all is model
                assert torch.isfinite(vector(of_all)).all()
                shared[pace.rank] = vector(of_all)
            assert torch.equal(vector(model), own)

    summary, _ = run_loops(out, scheme, loop, workers=2, servers=servers)
    assert not any(torch.equal(found, vector(toy_model())) for found in shared.values())
    assert not [worker for worker in summary.workers if not worker.steps]
    if scheme == "bsp":
        torch.testing.assert_close(shared[0], shared[1])


def test_under_local_schemes_it_is_what_was_exchanged_and_not_what_this_worker_has_made_of_it(out: Path) -> None:
    differs: list[bool] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, 8, epochs=2):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            with pace.shared_model():
                at_sync = vector(model)
            differs.append(not torch.equal(vector(model), at_sync))

    run_loops(out, "localsgd", loop, workers=2, servers=1, tau=4)
    assert any(differs)


def test_parameters_of_16_bits_keep_their_type_in_it_and_their_memory_after_it(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        places = [p.data_ptr() for p in model.parameters()]
        with pace.shared_model() as shown:
            assert {p.dtype for p in shown.parameters()} == {torch.bfloat16}
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
        assert [p.data_ptr() for p in model.parameters()] == places

    run_loops(out, "asp", loop, workers=1, make_model=lambda: toy_model().bfloat16())


@pytest.mark.parametrize("scheme", ["bsp", "asp", "localsgd", "gosgd"])
def test_once_the_run_is_over_it_is_the_workers_own_and_no_state_fails_but_in_a_line(out: Path, scheme: str) -> None:
    refused: list[str] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, 8, epochs=None):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            if pace.rank == 0 and pace.steps == 4:
                pace.stop("good enough")
        with pace.shared_model() as of_all:
            assert torch.isfinite(vector(of_all)).all()
        try:
            pace.state_dict()
        except ConfigError as error:
            refused.append(str(error))

    summary, models = run_loops(out, scheme, loop, workers=2, servers=int(scheme == "asp"))
    assert summary.reason == "good enough (worker 0)"
    assert all(why.startswith("pace.state_dict()") for why in refused)
    assert torch.equal(vector(models[0]), vector(models[1]))


@pytest.mark.parametrize("scheme", ["bsp", "asp", "gosgd"])
@pytest.mark.parametrize("workers", [1, 2])
def test_after_close_it_is_the_final_model(out: Path, scheme: str, workers: int) -> None:
    """As the last evaluation of a script asks for it: nobody has to answer any more."""

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, DATA)
        pace.close()
        with pace.shared_model() as shown:
            finals.append(vector(shown).clone())

    finals: list[torch.Tensor] = []
    _, models = run_loops(out, scheme, loop, workers=workers)
    assert len(finals) == workers
    assert all(torch.equal(final, vector(models[0])) for final in finals)
