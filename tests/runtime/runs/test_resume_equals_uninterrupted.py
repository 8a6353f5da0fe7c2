"""The law of resuming: a run that goes on from what was kept equals the uninterrupted one, bit for bit.

It holds for every scheme, both ways, at every step where a state is given; at all others the state is refused. Dropout
and batch-norm are in the model, so generators and statistics count, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from paceline.checkpoint.folder_store import CHECKPOINTS, MODEL, FolderStore
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.runtime.checkpointing.resume import find
from paceline.runtime.worker.pace import Pace
from tests.runtime.conftest import Runner
from tests.runtime.one_process import Weights, config_for, saved
from tests.runtime.own_loops import run_loops
from tests.runtime.runs.resume_laws import (
    BATCH,
    DATA,
    OPTIMIZERS,
    STEPS,
    Law,
    laws,
    laws_of_commands,
    through_a_file,
)

REFUSED = r"call it where pace\.at_exchange is True|use `paceline launch --checkpoint-every"
Trail = dict[int, torch.Tensor]
"""The weights of worker 0 after each step."""
States = dict[int, dict[int, Any]]
"""By step and rank."""


def model(dropout: float) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 2))


def vector(of: nn.Module) -> torch.Tensor:
    return torch.cat([v.detach().float().flatten() for v in of.state_dict().values()])


def loop_of(trail: Trail, states: States) -> Callable[[Pace, nn.Module], None]:
    """A loop of STEPS steps that asks for a state after each of them."""

    def loop(pace: Pace, module: nn.Module) -> None:
        for x, y in pace.batches(DATA, BATCH, epochs=20, partition="uniform"):
            nn.functional.cross_entropy(module(x), y).backward()
            pace.step()
            if pace.rank == 0:
                trail[pace.steps] = vector(module)
            keep(pace, states)
            if pace.steps == STEPS:
                return

    return loop


def keep(pace: Pace, states: States) -> None:
    """Keeps the state of a worker where there is one. Elsewhere it is refused in one line that names the way out."""
    if pace.at_exchange:
        states.setdefault(pace.steps, {})[pace.rank] = through_a_file(pace.state_dict())
        return
    with pytest.raises(
        ConfigError, match=r"pace\.at_exchange is True|use `paceline launch --checkpoint-every"
    ) as error:
        pace.state_dict()
    assert "\n" not in str(error.value)


def trained(law: Law, out: Path, given: dict[int, Any] | None = None) -> tuple[Trail, States, torch.Tensor]:
    trail, states = Trail(), States()
    _, models = run_loops(
        out,
        law.scheme,
        loop_of(trail, states),
        workers=law.workers,
        servers=law.servers,
        optimizer=OPTIMIZERS[law.optimizer],
        make_model=lambda: model(0.2 if law.workers == 1 else 0.0),  # threads share one generator
        states=given,
        **law.parameters,
    )
    return trail, states, vector(models[0])


@pytest.mark.parametrize("law", [*laws(), *laws(workers=2)], ids=str)
def test_a_loop_that_goes_on_from_its_state_equals_the_uninterrupted_one(law: Law, out: Path) -> None:
    trail, states, end = trained(law, out / "whole")
    given = [step for step in states if step < STEPS]
    assert given or not law.gives_states, "no step gives a state"
    for step in given if law.at_every_step else sorted({*given[:1], *given[-2:]}):
        again, _, end_again = trained(law, out / f"from-{step}", states[step])
        assert [at for at in range(step + 1, STEPS + 1) if not torch.equal(again[at], trail[at])] == []
        assert torch.equal(end_again, end)


# ---- the command ---------------------------------------------------------------------------------------------------
COMMANDS = {"momentum": {"name": "sgd", "lr": 0.05, "momentum": 0.9}, "adamw": {"name": "adamw", "lr": 0.003}}
FIRST, IN_ALL = 24, 31
"""Steps of the run that is taken up again, and of the whole one. 24 are whole rounds of most schemes."""


def command(law: Law, out: Path, steps: int, **checkpoint: Any) -> Config:
    return config_for(
        out,
        steps=steps,
        scheme=law.scheme,
        workers=law.workers,
        servers=law.servers,
        optimizer=COMMANDS[law.optimizer],
        checkpoint=checkpoint,
        # Who carries means is chosen by measured links, and each has other last bits.
        cluster={"step_ms": 4.0, "allreduce": "servers"},
        data={"samples": 600, "batch_size": 8, "partition": "uniform"},
        model={"dropout": 0.2 if law.workers == 1 else 0.0},
        schedule={"name": "step", "every": 0.25, "factor": 0.7},
        evaluation={"every": 0.02},
        **{law.scheme: law.parameters},
    )


def whole_ones(folder: FolderStore, workers: int) -> list[int]:
    """The checkpoints that were taken between two exchanges, and of all workers in the same round.

    That of the end may be of a run that ended within an exchange, and one from its middle of workers in two rounds.
    """
    facts = {number: folder.manifest(number).facts for number in folder.numbers()}
    return [number for number, of in facts.items() if of["whole"] and (of["aligned"] or workers == 1)]


def differing(got: Weights, wanted: Weights) -> list[str]:
    return [name for name, tensor in wanted.items() if not torch.equal(got[name], tensor)]


@pytest.mark.parametrize("law", [*laws_of_commands(), *laws_of_commands(workers=2)], ids=str)
def test_a_command_that_resumes_a_checkpoint_equals_the_uninterrupted_one(law: Law, threads: Runner, out: Path) -> None:
    torch.manual_seed(9)
    whole = command(law, out / "whole", IN_ALL, every=0.0)
    threads(whole)
    threads(command(law, out / "first", FIRST, every=0.03, keep_last=100))
    folder = FolderStore(out / "first" / CHECKPOINTS)
    found = whole_ones(folder, law.workers)
    assert found
    for number in sorted({found[0], found[-1]}):
        again = command(law, out / f"from-{number}", IN_ALL, every=0.0, resume=str(folder.place(number)))
        assert [worker.steps for worker in threads(again).workers] == [IN_ALL] * law.workers
        assert differing(saved(again), saved(whole)) == []


@pytest.mark.parametrize("parameters", [{"tau": 5}, {"tau": 5, "memory": "average"}], ids=str)
def test_a_run_that_ended_within_a_round_goes_on_from_its_last_model(
    threads: Runner, out: Path, parameters: dict[str, Any]
) -> None:
    """Its last round was a shorter one, of which nothing is trained again."""
    law = Law(scheme="localsgd", servers=1, optimizer="momentum", parameters=parameters, workers=2)
    first = command(law, out, 12, every=30.0)
    threads(first)
    folder = FolderStore(out / CHECKPOINTS)
    last = max(folder.numbers())
    assert differing(load_file(folder.place(last) / MODEL), saved(first)) == []
    again = command(law, out, IN_ALL, every=30.0, resume="auto")
    start, _ = find(again)
    assert start.note.endswith("its run ended within a round, so that was a shorter one")
    assert [(worker.steps, worker.samples) for worker in threads(again).workers] == [(IN_ALL, 8 * IN_ALL)] * 2


@pytest.mark.parametrize(
    ("more", "whole", "differs"),
    [
        ({}, True, False),
        ({"fragments": 2}, True, True),
        ({"fragments": 2, "eager": True}, True, True),
        ({"fragments": 2, "delay": 1}, False, False),  # an exchange is under way
    ],
    ids=str,
)
def test_the_last_checkpoint_is_of_before_the_last_exchange_and_the_last_model_of_after_it(
    threads: Runner, out: Path, more: dict[str, Any], whole: bool, differs: bool
) -> None:
    """A longer run exchanges nothing where a shorter one ended. Where that was within an exchange both are the same."""
    law = Law(scheme="diloco", servers=1, optimizer="momentum", parameters={"h": 6, **more}, workers=2)
    first = command(law, out, 24, every=30.0)
    threads(first)
    folder = FolderStore(out / CHECKPOINTS)
    last = max(folder.numbers())
    assert (last in whole_ones(folder, 2)) == whole
    assert bool(differing(load_file(folder.place(last) / MODEL), saved(first))) == differs


def test_a_line_warns_where_phases_begin_anew(threads: Runner, out: Path) -> None:
    law = Law(scheme="hybrid", servers=1, optimizer="momentum", parameters={"phases": "bsp until 3 steps; asp"})
    threads(command(law, out, 6, every=30.0))
    start, _ = find(command(law, out, 9, every=30.0, resume="auto"))
    assert start.note.endswith("so does what each worker remembers; its phases begin anew, with the first")


@pytest.mark.parametrize(
    ("scheme", "workers", "says"), [("asp", 2, True), ("asp", 1, False), ("localsgd", 2, False), ("hybrid", 2, True)]
)
def test_a_line_says_that_batches_under_way_may_be_trained_twice(
    threads: Runner, out: Path, scheme: str, workers: int, says: bool
) -> None:
    law = Law(scheme=scheme, servers=1, optimizer="momentum", workers=workers)
    threads(command(law, out, 6, every=30.0))
    start, _ = find(command(law, out, 9, every=30.0, resume="auto"))
    line = "batches that were under way may be trained twice, or not at all"
    assert start.note.endswith(line) == says
    known = replace(start.manifest, facts={**start.facts, "settled": True})
    assert line not in replace(start, manifest=known).note


def test_a_line_says_that_samples_of_the_share_of_one_that_had_left_may_be_trained_twice(
    threads: Runner, out: Path
) -> None:
    law = Law(scheme="localsgd", servers=1, optimizer="momentum", workers=2)
    threads(command(law, out, 6, every=30.0))
    start, _ = find(command(law, out, 9, every=30.0, resume="auto"))
    line = "a worker had left or was lost: samples of its share may be trained twice, or not at all"
    assert line not in start.note
    moved = replace(start.manifest, facts={**start.facts, "moved": True})
    assert start.note + f"; {line}" == replace(start, manifest=moved).note


def test_a_line_says_what_a_checkpoint_of_an_older_version_lacks(threads: Runner, out: Path) -> None:
    law = Law(scheme="asyncdiloco", servers=1, optimizer="momentum", parameters={"h": 3})
    threads(command(law, out, 6, every=30.0))
    start, _ = find(command(law, out, 9, every=30.0, resume="auto"))
    older = {name: fact for name, fact in start.facts.items() if name not in ("whole", "kept", "scales")}
    before = replace(start, manifest=replace(start.manifest, facts=older))
    assert before.note.endswith("what else servers and roles keep, such as outer momenta, begins anew")
    assert before.note.startswith(start.note)
