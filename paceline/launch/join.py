"""Implements `paceline.join`: a training loop of one's own becomes a worker of a run.

pace = paceline.join(model, optimizer, scheme="esync")
for x, y in pace.batches(dataset, batch_size=64):
    loss_fn(model(x), y).backward()
    pace.step()

what the environment says          what `join` does
PACELINE_COORDINATOR               takes part in the run of `paceline launch`
torchrun, Slurm, MPI, MXNet        calls the run's leader, which assigns a part (`external/follower.py`)
nothing                            starts the other parties as threads of this process (`single_process.py`)
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.codec import read
from paceline.codec.pipeline.policy import Codecs
from paceline.config import Config
from paceline.config.option_types import SchemeParameters
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.scheme import make
from paceline.engine.forward_samples import SamplesOf
from paceline.engine.model.several_models import of_one_model, together
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.evaluated_weights import evaluates_others, show_trained
from paceline.engine.optim.own_optimizer import EVALUATES_AGAIN, evaluates_again
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.optim.whole_tensors import imported, made_by, path_of
from paceline.engine.specs import AUTO, OptimizerRecipe
from paceline.launch.exit_hook import ScriptExit, exit_if_too_late, say_nothing_of_lost_peers
from paceline.launch.external.detect import STARTERS, detect_external
from paceline.launch.local.environment import incarnation_from, scheme_from, spec_from
from paceline.launch.local.freed_memory import keep_freed_memory
from paceline.launch.next_part import RunPart
from paceline.launch.own_run import Evaluate, begin_at, check_evaluated, evaluate_and_exit
from paceline.live.control.session import Session
from paceline.runtime.checkpointing.worker_state import by_round
from paceline.runtime.process_main import check_device_of
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.spec.rate_scale import with_rate
from paceline.runtime.spec.who_updates import check_several, fitted
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.ranks.first_rank import FirstRankPace, telling
from paceline.runtime.worker.ranks.local_group import process_group
from paceline.runtime.worker.ranks.meeting import RankMeeting, check_asked, check_recipe, meet
from paceline.runtime.worker.ranks.other_rank import OtherRankPace
from paceline.runtime.worker.shared_optimizer_state import say_dropped_of_ranks
from paceline.runtime.worker.single_process import servers_needed, sit_alone
from paceline.runtime.worker.steps.constraint import Constraint
from paceline.runtime.worker.steps.drop_in import DropInOptimizer
from paceline.runtime.worker.steps.random_generators import differ

if TYPE_CHECKING:
    import torch
    from torch import nn

    OptimizerFactory = Callable[[list[tuple[str, nn.Parameter]]], torch.optim.Optimizer]
    Optimizers = Mapping[str, torch.optim.Optimizer] | Sequence[torch.optim.Optimizer]

SHARED_SCHEDULE, OWN_SCHEDULE = "shared", "own"
"""What schedulers of the loop go by: the samples of all workers, or this worker's steps."""


def join(
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: torch.optim.Optimizer | OptimizerFactory | str | Optimizers,
    scheme: str = "esync",
    *,
    seed: int = 0,
    lazy: bool = False,
    clip_norm: float = 0.0,
    lr_scale: float | str = AUTO,
    codec: str = "none",
    codec_down: str = "none",
    overlap: bool = False,
    seed_ranks: bool = True,
    evaluate: Evaluate | None = None,
    state: Mapping[str, Any] | None = None,
    samples_of: SamplesOf | None = None,
    constraint: Constraint | None = None,
    batch_limit: int = 0,
    schedule: str = SHARED_SCHEDULE,
    group: Any = None,
    data_group: Any = None,
    **parameters: Unpack[SchemeParameters],
) -> Pace:
    """Joins a run as a worker, and returns when training starts.

    `paceline launch`, torchrun, Slurm, MPI or you set this process's place in the environment (docs/launch.md). Without
    one this process is the only worker. Parameters that require a gradient and are in `optimizer` are trained; the rest
    stays as worker 0 has it (docs/own-loop.md). Load a checkpoint before `join`.

    Where the scheme updates on servers, they use the kind, the parameter groups, the numbers and the state of
    `optimizer`. Where workers make the steps, `optimizer` itself makes them, whatever it is. It may be given as a
    function of named parameters that makes one, as the import path of such a function, or as a list of several for one
    model (docs/optimizers.md). Leave `optimizer.step` and `optimizer.zero_grad` to `pace.step()`.
    Several models go by name: `join({"D": d, "G": g}, {"D": of_d, "G": of_g})`; `pace.step("D")` trains one.
    Torch schedulers follow the samples of all workers; with `schedule="own"` each `scheduler.step()` is one step.
    `parameters` are those of the scheme. `codec` compresses what workers send, `codec_down` what servers send. `seed`
    seeds what is drawn. With `seed_ranks` all workers but 0 seed torch, `random` and NumPy anew. `clip_norm` shortens
    a longer gradient: the mean of all workers where the scheme forms one, otherwise each contribution or local step.
    With `lazy`, gradients of `nn.Embedding(sparse=True)` travel as rows with any optimizer (docs/embeddings.md). With
    `overlap` gradients of `pace.batches` leave while backward still runs; nothing may change them after it.
    `evaluate(model)` is called in a process of its own, under `paceline launch --eval-every`, and returns an accuracy,
    or a dict with `accuracy`, `loss`. From `state`, which `pace.state_dict()` returned, the run goes on
    (docs/checkpoints.md); a checkpoint of `--resume` wins over it.
    `samples_of` gets the arguments of each call of the model, and returns how many samples, or tokens, it counts as; by
    default its first tensor's length. `constraint(model)` limits weights after each step made here (docs/own-loop.md).
    `group`, `data_group`: docs/workers-of-several-devices.md. `lr_scale`: a factor on the rate (docs/optimizers.md).
    `batch_limit`: docs/own-loop.md. `pace.close()`, or the script's end, leaves the run and loads the final model.
    Raises ConfigError for an unknown scheme or codec, a bad parameter, or an optimizer that is not supported.
    """
    of_loop = _of_loop(samples_of, schedule, batch_limit)
    codecs, changes = Codecs(up=codec, down=codec_down), {"lazy": lazy, "clip_norm": clip_norm}
    own = _begin(scheme, {**parameters})
    recipe_with = functools.partial(_recipe, *own, codecs, seed, changes, whole=constraint is not None)
    if group is not None:
        check_asked(lazy=lazy, overlap=overlap, evaluate=evaluate, state=state, constraint=constraint)
        ranks = meet(model, optimizer, group, data_group, _check_started(os.environ, group))
        apart = seed if seed_ranks else None
        return _join_with_ranks(ranks, recipe_with, lr_scale, apart, of_loop)
    begun = functools.partial(_begun, seed_ranks=seed_ranks, state=state, constraint=constraint, **of_loop)
    return _join_on_one_device(model, optimizer, recipe_with, begun, lr_scale, evaluate=evaluate, overlap=overlap)


def _of_loop(samples_of: SamplesOf | None, schedule: str, batch_limit: int) -> dict[str, Any]:
    """Returns what a script says of its loop. Raises ConfigError for what cannot be."""
    if schedule not in (SHARED_SCHEDULE, OWN_SCHEDULE):
        raise ConfigError(f"schedule={schedule!r}: give {SHARED_SCHEDULE!r} or {OWN_SCHEDULE!r}")
    if batch_limit != int(batch_limit) or batch_limit < 0:
        raise ConfigError(f"batch_limit={batch_limit!r}: give a number of samples, 1 or more, or 0 for any")
    own_schedule = schedule == OWN_SCHEDULE
    return {"samples_of": samples_of, "own_schedule": own_schedule, "batch_limit": int(batch_limit)}


def _join_on_one_device(
    model: Any,
    optimizer: Any,
    recipe_with: Callable[[OptimizerRecipe], Recipe],
    begun: Callable[..., Pace],
    lr_scale: float | str,
    *,
    evaluate: Evaluate | None,
    overlap: bool,
) -> Pace:
    """Joins a run as a worker of one process, in which `begun` begins the training."""
    module, given = _as_one(model, optimizer)
    whole, how = optimizer_of(module, given)
    show_trained(whole)
    recipe, (spec, end) = recipe_with(how), find_spec()
    if evaluates_others(whole):
        recipe = _of_equal_workers(recipe, spec.servers if spec else servers_needed(recipe.make_scheme()), whole)
    recipe = _checked(recipe, spec, lr_scale, several=len(model) > 1 if isinstance(model, Mapping) else False)
    if spec and spec.who.kind == "evaluator":
        evaluate_and_exit(module, whole, recipe, spec, evaluate)
    spec, session = _sit(spec, recipe, str(next(module.parameters()).device))
    pace = begun(module, whole, recipe, spec.overlapping(overlap), session)
    check_evaluated(evaluate, pace.rank, session)
    _leave_at_exit(pace, end)
    return pace


def _of_equal_workers(recipe: Recipe, servers: int, optimizer: torch.optim.Optimizer) -> Recipe:
    """Returns `recipe` in the form in which every worker makes every step, of the whole model and with the same state,
    as an optimizer needs that evaluates other weights than it trains. Raises ConfigError where there is none."""
    scheme = recipe.make_scheme().with_whole_updates()
    if scheme.trains_locally or scheme.own_momentum or not by_round(scheme, servers):
        raise ConfigError(
            f"{type(optimizer).__name__} evaluates other weights than it trains (eval()), by a state that under "
            f"{recipe.scheme} differs between workers or is on servers: take bsp, or another optimizer"
        )
    return dataclasses.replace(recipe, parameters=scheme.parameters())


def _recipe(
    scheme: str,
    parameters: dict[str, Any],
    codecs: Codecs,
    seed: int,
    changes: dict[str, Any],
    how: OptimizerRecipe,
    *,
    whole: bool,
) -> Recipe:
    """Returns what the workers agree on; `changes`: what `join` says of the optimizer. `whole`: workers make the steps,
    each of the whole model, if the scheme has such a form.

    Raises ConfigError for a bad parameter, and for an unknown codec before anything starts, also in a script alone.
    """
    made = make(scheme, parameters)
    made = made.with_whole_updates() if whole else made
    for codec in (codecs.up, codecs.down):
        read(codec)
    return Recipe(
        scheme=scheme,
        parameters=made.parameters(),
        optimizer=dataclasses.replace(how, **changes),
        seed=seed,
        codecs=codecs.or_that_of(made),
    )


def _check_started(environment: Mapping[str, str], group: Any) -> float:
    """Returns the seconds that the ranks of a worker wait for one another.

    Raises ConfigError where another launcher than ours has started more processes than those of the worker.
    """
    spec, size = spec_from(environment), process_group(group).size()
    if spec is not None:
        return spec.timeout_s
    for names in STARTERS:
        count = environment.get(names.count, "")
        if names.rank in environment and count.isdecimal():
            if int(count) != size:
                raise ConfigError(
                    f"{names.starter} has started {count} processes, and the group has {size}: start workers of "
                    f"several devices with `paceline launch --ranks {size}`"
                )
            break
    return Config().cluster.timeout


def _join_with_ranks(
    ranks: RankMeeting,
    recipe_with: Callable[[OptimizerRecipe], Recipe],
    lr_scale: float | str,
    differing: int | None,
    of_loop: dict[str, Any],
) -> Pace:
    """Joins a run as one rank of a worker: the first one takes part in the run, the others follow it.

    `differing`: by which seed the ranks' generators are to differ; None where they are not. `of_loop`: what `join` says
    of the loop.
    """
    samples_of, own_schedule = of_loop["samples_of"], of_loop["own_schedule"]
    wanted = differing is not None
    if not ranks.is_first:
        say_nothing_of_lost_peers()
        other = OtherRankPace(ranks, samples_of, own_schedule=own_schedule)
        number = other.rank + other.workers * ranks.place[0]
        differ(differing or 0, number, incarnation_from(os.environ), wanted=wanted and not other.draws_on)
        atexit.register(leave, other, ScriptExit())
        return cast(Pace, other)
    with telling(ranks.link):
        if evaluates_again(ranks.parts.optimizer):
            raise ConfigError(
                f"{EVALUATES_AGAIN}: in a worker of several devices take one that needs one gradient a step"
            )
        if evaluates_others(ranks.parts.optimizer):
            kind = type(ranks.parts.optimizer).__name__
            raise ConfigError(f"{kind} evaluates other weights than it trains: workers of several devices take another")
        recipe = recipe_with(recipe_of(ranks.parts.optimizer, ranks.parts.trained))
        spec, end = find_spec() if spec_from(os.environ) else (None, None)
        recipe = _checked(recipe, spec, lr_scale, several=False)
        check_recipe(recipe, servers_needed(recipe.make_scheme()) if spec is None else spec.servers)
        whole = ranks.whole()
        if spec and spec.who.kind == "evaluator":
            ranks.link.dismiss()  # evaluators and checkpoints need the whole model only
            evaluate_and_exit(whole.whole, whole.stand_in, recipe, spec, None)
        spec, session = _sit(spec and dataclasses.replace(spec, device="cpu"), recipe, "cpu")
        try:
            recipe, behind = begin_at(whole.whole, recipe, spec, None)
            if not behind.samples:
                say_dropped_of_ranks(ranks.parts.optimizer, recipe, spec.servers)
            whole.show_all()
            with exit_if_too_late(spec.party):
                pace = FirstRankPace(
                    ranks,
                    whole,
                    recipe,
                    _with_batch_limit(spec.overlapping(False), of_loop["batch_limit"]),
                    session,
                    behind=behind,
                    samples_of=samples_of,
                    own_schedule=own_schedule,
                )
            differ(recipe.seed, pace.rank, spec.incarnation, wanted=wanted and not behind.draws_on)
        except BaseException:
            session.close()
            raise
    atexit.register(leave, pace, end)
    return pace


def _begun(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    spec: ProcessSpec,
    session: Session,
    *,
    seed_ranks: bool,
    state: Mapping[str, Any] | None,
    samples_of: SamplesOf | None,
    own_schedule: bool,
    constraint: Constraint | None,
    batch_limit: int,
) -> Pace:
    """Returns the worker in training. If that fails, the session is closed, since the script may go on without it."""
    try:
        spec = _with_batch_limit(spec, batch_limit)
        recipe, behind = begin_at(module, recipe, spec, state, optimizer)
        with exit_if_too_late(spec.party):
            pace = Pace(
                module,
                recipe,
                spec,
                session,
                optimizer=optimizer,
                behind=behind,
                samples_of=samples_of,
                own_schedule=own_schedule,
                constraint=constraint,
            )
        differ(recipe.seed, pace.rank, spec.incarnation, wanted=seed_ranks and not behind.draws_on)
    except BaseException:
        session.close()  # a script that goes on without us shall keep no thread or socket of ours
        raise
    return pace


def _with_batch_limit(spec: ProcessSpec, limit: int) -> ProcessSpec:
    """Returns `spec` with the script's largest batch, unless the command says one."""
    return spec if spec.batch_limit else dataclasses.replace(spec, batch_limit=limit)


def _as_one(model: Any, optimizer: Any) -> tuple[nn.Module, Any]:
    """Returns the only model, or all of them as one, with its optimizer. Raises ConfigError if they do not go
    together."""
    if isinstance(model, Mapping) and isinstance(optimizer, Mapping):
        return together(model, {name: _own(each) for name, each in optimizer.items()})
    if isinstance(optimizer, list | tuple) and not isinstance(model, Mapping):
        optimizer = {str(number): each for number, each in enumerate(optimizer)}
    if isinstance(optimizer, Mapping) and not isinstance(model, Mapping):
        return model, of_one_model({name: _own(each) for name, each in optimizer.items()})
    if isinstance(model, Mapping):
        raise ConfigError('several models need an optimizer each: join({"D": d, "G": g}, {"D": of_d, "G": of_g})')
    return model, _own(optimizer)


def _own(optimizer: Any) -> Any:
    """Returns the user's optimizer for the `pace.optimizer` of an earlier run, which a cell that is run again gives."""
    return optimizer.original if isinstance(optimizer, DropInOptimizer) else optimizer


def _checked(recipe: Recipe, spec: ProcessSpec | None, lr_scale: float | str, *, several: bool) -> Recipe:
    """Returns `recipe` as it runs on such a cluster, with `several` models. Raises ConfigError where it does not.

    `lr_scale`: what the script says; that of the command wins.
    """
    if several:
        check_several(recipe)
    if spec is None:
        return with_rate(fitted(recipe, servers_needed(recipe.make_scheme())), 1, str(lr_scale))
    recipe.make_scheme().check(spec.workers, spec.servers)
    told = spec.config.optimizer.lr_scale
    recipe = with_rate(fitted(recipe, spec.servers), spec.workers, told if told != AUTO else str(lr_scale))
    recipe.codecs.check(recipe.make_scheme(), spec.servers, recipe.optimizer.momentum_max)
    return recipe


def optimizer_of(
    model: nn.Module, given: torch.optim.Optimizer | OptimizerFactory | str
) -> tuple[torch.optim.Optimizer, OptimizerRecipe]:
    """Returns the optimizer, and the recipe of what it does.

    Raises ConfigError for a model that cannot be trained, and for what is no optimizer and makes none.
    """
    path = ""
    if isinstance(given, str) or callable(given):
        path, function = (given, imported(given)) if isinstance(given, str) else (path_of(given), given)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        given = made_by(path or repr(given), function, named)
    return given, recipe_of(given, trained_of(model, given), path)


_parts: list[RunPart] = []
"""What is known of the parts of this process's run with others, the present one last."""
_with_others: list[Pace] = []
"""The worker of the present part."""
_alone: dict[int, tuple[Pace, Callable[[], None]]] = {}
"""By thread: the worker that joined last, if it is alone, and what ends it at exit; another `join` ends it before."""


def _begin(scheme: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the scheme and its parameters, which the command may have set.

    A process may join again: this ends its earlier part. One that is alone may do so in the middle of a step, as
    notebooks do; with others it makes its last exchange first. From now on the process keeps the memory that steps
    free.
    """
    if _parts and not _with_others:  # a worker of several ranks, or one that could not join
        raise _parts[-1].joins_once("workers of several devices")
    if _with_others:
        pace = _with_others.pop()
        pace.end_part()
        _parts[-1] = dataclasses.replace(_parts[-1], lost=frozenset(pace.lost))
    if earlier := _alone.pop(threading.get_ident(), None):
        pace, leaving = earlier
        pace.supersede()
        atexit.unregister(leaving)
    keep_freed_memory(os.environ)
    return scheme_from(os.environ, scheme, parameters)


def _leave_at_exit(pace: Pace, end: ScriptExit | None) -> None:
    """Ends the worker at the end of its script, or when it joins again, by `_begin`. `end`: None if it is alone."""
    leaving = functools.partial(leave, pace, end)
    atexit.register(leaving)
    if end is None:
        _alone[threading.get_ident()] = pace, leaving
    else:
        _with_others.append(pace)


def _sit(spec: ProcessSpec | None, recipe: Recipe, own_device: str) -> tuple[ProcessSpec, Session]:
    """Says hello to the coordinator, or starts a run with a single worker; returns spec and session."""
    if spec is None:
        return sit_alone(recipe.make_scheme(), device=own_device)
    _parts.append(RunPart(spec, len(_parts) + 1, frozenset()))
    if spec.device == "auto":
        spec = dataclasses.replace(spec, device=own_device)
    check_device_of(spec)
    session = spec.session(spec.open_transport())
    session.hello(spec.coordinator, spec.device, incarnation=spec.incarnation)
    return spec, session


def find_spec() -> tuple[ProcessSpec | None, ScriptExit | None]:
    """Returns the spec of this process, None if it is alone; and what watches its end.

    Those that start one are `paceline launch`, torchrun, Slurm and MPI, or somebody with MXNet's variables.
    """
    if _parts:
        return _parts[-1].next()
    spec = spec_from(os.environ)
    if spec is not None:  # the launcher hears the exit code, too, but only when the good-byes are over
        say_nothing_of_lost_peers()
        return spec, ScriptExit()
    if detect_external(os.environ) is None:
        return None, None
    from paceline.launch.external.follower import find_place

    place = find_place()
    if place is None:
        return None, None
    end = ScriptExit()
    atexit.register(lambda: place.leave(end.code))
    return place.spec, end


class JoinedWorker(Protocol):
    """What `leave` asks of a worker: a Pace, or a key-value store."""

    rank: int

    def close(self) -> None:
        """Ends the worker's part in order."""

    def abandon(self, cause: str, *, lost_another: bool = False) -> None:
        """Reports that the loop has failed; the run ends with `cause`."""


def leave(member: JoinedWorker, end: ScriptExit | None) -> None:
    """Ends a worker at the end of its script: in order, or with the reason why not."""
    if (error := getattr(sys, "last_value", None)) is not None:
        cause = f"worker {member.rank}: {type(error).__name__}: {error}"
        member.abandon(cause, lost_another=isinstance(error, PeerLost))
    elif end is not None and end.code:
        member.abandon(f"worker {member.rank}: its script ended with exit code {end.code}")
    else:
        if isinstance(member, Pace) and not member.closed and member.rank == 0 and member.workers > 1:
            print(
                "paceline: worker 0: its script ended without pace.close(): a model that it saved lacks what others "
                "trained last; call pace.close() first",
                file=sys.stderr,
            )
        member.close()
