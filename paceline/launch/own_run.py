"""Does what a process of a loop of one's own does at `join` besides training: it resumes a checkpoint, or evaluates."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from paceline.core.coordination import party
from paceline.live.control.session import Session
from paceline.runtime.checkpointing.resume import ResumePoint, config_of_loop, kind_of, open_at
from paceline.runtime.evaluator.evaluator import evaluate as take_evaluators_part
from paceline.runtime.evaluator.subject import subject_of_loop
from paceline.runtime.process_main import take_part
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.loop.progress import ResumedProgress
from paceline.runtime.worker.loop_state import LoadedState
from paceline.runtime.worker.shared_optimizer_state import state_at_join

if TYPE_CHECKING:
    import torch
    from torch import nn

Evaluate = Callable[[Any], Any]
"""Gets the model, or all of them by name, and returns an accuracy, or accuracy and loss by name."""
NOBODY_EVALUATES = (
    "paceline: evaluate= is called in a process of its own, which this run has not: start it with "
    "`paceline launch --eval-every 5`, or give `paceline race` that flag"
)
NO_BEST = "paceline: --keep-best goes by accuracy, and join has no evaluate=: the newest checkpoints are kept"


def start_of(spec: ProcessSpec, recipe: Recipe) -> ResumePoint:
    """Returns where a worker of the run begins. Raises ConfigError where the checkpoint cannot be read."""
    cluster = dataclasses.replace(spec.config.cluster, workers=spec.workers, servers=spec.servers)
    return open_at(dataclasses.replace(spec.config, cluster=cluster), spec.resume).of_loop(recipe)


def progress_at(start: ResumePoint, rank: int, workers: int) -> ResumedProgress:
    """Returns the progress of a worker that begins there."""
    memories, place = start.memories(rank), start.place(rank)
    return ResumedProgress(
        start.clock(rank),
        samples=start.samples,
        memories=memories,
        position=start.samples // workers if place is None else place,
        done=start.done,
        skipped=start.skipped,
    )


def begin_at(
    module: nn.Module,
    recipe: Recipe,
    spec: ProcessSpec,
    state: Mapping[str, Any] | None,
    optimizer: torch.optim.Optimizer | None = None,
) -> tuple[Recipe, ResumedProgress]:
    """Loads the weights that a worker begins with, and returns the recipe of its run and its progress.

    A checkpoint that the command names wins over `state`, and both over what `optimizer` remembers. Raises
    ConfigError for what cannot be read or does not fit.
    """
    start = start_of(spec, recipe)
    if state is None or start.folder is not None:
        start.load_into(module)
        behind, given = progress_at(start, spec.who.index, spec.workers), None
        if optimizer is not None and spec.who.index == 0 and start.folder is None:
            recipe, given = state_at_join(module, optimizer, recipe, spec.servers, start.samples)
        return recipe, dataclasses.replace(behind, of_servers=given)
    loaded = LoadedState(state, recipe, spec.who.index, spec.workers, spec.servers)
    loaded.load_into(module)
    return loaded.marked(recipe), loaded.progress()


def evaluate_and_exit(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    spec: ProcessSpec,
    evaluate: Evaluate | None,
) -> NoReturn:
    """Takes part as the evaluator until the run is over, and ends the script there.

    Without `evaluate` it only writes checkpoints, so it looks as often as those are due.
    """
    spec = dataclasses.replace(spec, device=str(next(module.parameters()).device))
    config = config_of_loop(spec.config, recipe)
    if evaluate is None:  # it only looks whether a checkpoint is due
        if config.checkpoint.keep_best:
            print(NO_BEST, file=sys.stderr)
        every = min(config.evaluation.every, config.checkpoint.every or config.evaluation.every)
        config = dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, every=every))
    subject = subject_of_loop(module, optimizer, evaluate, kind_of(recipe))
    ended = take_part(spec, spec.open_transport(), lambda session: take_evaluators_part(config, spec, session, subject))
    sys.exit(1 if ended.why else 0)


def check_evaluated(evaluate: Evaluate | None, rank: int, session: Session) -> None:
    """Prints, once, that a function will not be called, since the run has no evaluator."""
    if evaluate is not None and not rank and not session.has(party.EVALUATOR):
        print(NOBODY_EVALUATES, file=sys.stderr)
