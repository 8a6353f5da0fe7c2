"""The state of a training loop as plain values: what `pace.state_dict()` returns, and `join(state=...)` goes on from.

    paceline    the format's number
    identity    scheme, parameters, seed, codecs, optimizer, servers, workers: what has to be the same
    samples     of all workers together; `done`: which they are, where servers know; `rank`: the worker that has saved
    model       the module's own state_dict, with the weights and batch-norm statistics of all
    masters     the float32 vector of the weights, where parameters have 16 bits; otherwise None
    worker      facts and vectors of this worker (`checkpointing/worker_state.py`), place in the data, generators
    servers     numbers and vectors of the optimizer on servers, and what their roles keep; None where workers hold it

Everything is a tensor, a number, a text, or a list or dict of these, so `torch.load` with `weights_only=True` reads it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.effects import Data
from paceline.core.errors import ConfigError
from paceline.core.samples.sample_leases import SampleRanges
from paceline.core.scheme import ModelOf
from paceline.engine.optim.own_optimizer import evaluates_again
from paceline.engine.vectors.flat import Flat
from paceline.runtime.checkpointing.resume import kind_of, load_weights
from paceline.runtime.checkpointing.slice_capture import KEPT, WEIGHTS
from paceline.runtime.checkpointing.state_on_request import ServerState, read_servers
from paceline.runtime.checkpointing.worker_position import Position, generators
from paceline.runtime.checkpointing.worker_state import COMMON, RULE, USER, WorkerState, by_round, under
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.joining import Worker
from paceline.runtime.worker.loop.progress import ResumedProgress
from paceline.runtime.worker.shared_model import shared_weights

FORMAT = 1
"""The version of the dict; another one is refused."""
WEIGHTS_ONLY = 'for the weights alone call model.load_state_dict(state["model"]) before join'
"""The way out for whoever wants the weights alone."""
OLDER = (
    "paceline: join(state=...): an older version wrote the state: weights, optimizers and places in the data go on; "
    "what else servers and roles keep, such as outer momenta, begins anew"
)
"""Is printed for a state that lacks parts."""
PARTS = ("identity", "samples", "rank", "model", "masters", "worker", "servers")
"""The keys of the dict."""


def identity_of(recipe: Recipe, workers: int, servers: int) -> dict[str, Any]:
    """Returns what must be the same where a state is loaded, as plain values."""
    return {
        "scheme": recipe.scheme,
        "parameters": dict(recipe.parameters),
        "seed": recipe.seed,
        "codecs": [recipe.codecs.up, recipe.codecs.down],
        "optimizer": kind_of(recipe),
        "servers": servers > 0,
        "workers": workers,
    }


# ---- saving ------------------------------------------------------------------------------------------------------
def save_state(worker: Worker) -> dict[str, Any]:
    """Returns the state of the loop after its last step. Raises ConfigError where there is none to have, PeerLost or
    TimedOut."""
    run, model = worker.run, worker.model
    model_of = _model_of(worker)
    _check_can_be_saved(worker, model_of)
    facts, found = model.capture(run.node, run.recipe, run.spec.servers).take()
    vectors = {name: _tensor(v) for name, v in found.items()}
    servers = None
    if model_of == "servers":
        servers = read_servers(run.node, run.rank, run.plan.layout, model.flat.tensors)
        weights = servers.vectors.pop(WEIGHTS)
    else:
        weights = vectors.pop(WEIGHTS) if WEIGHTS in vectors else _tensor(shared_weights(run))
    with worker.statistics.showing(), model.flat.showing(Flat.wrap(weights)) as module:
        own = {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
    done = _done(worker, servers)
    low = any(p.dtype != torch.float32 for p in model.flat.parameters)
    return {
        "paceline": FORMAT,
        "identity": identity_of(run.recipe, run.plan.workers, run.spec.servers),
        "samples": SampleRanges(done).count or worker.sizes.clock.now,
        "done": [list(piece) for piece in done],
        "rank": run.rank,
        "model": own,
        "masters": weights if low else None,
        "worker": {
            "facts": facts,
            "vectors": vectors,
            "steps": worker.counts.steps,
            "position": worker.feed.position,
            "generators": [state.clone() for state in generators(run.device)],
        },
        "servers": servers and {"numbers": servers.numbers, "vectors": servers.vectors, "role": servers.of_role},
    }


def _done(worker: Worker, servers: ServerState | None) -> Data:
    """Returns which samples are in the model; () where it is not known of all."""
    return servers.done if servers and worker.feed.names_samples else ()


def at_exchange(worker: Worker) -> bool:
    """Returns True if there is a whole state to save."""
    try:
        _check_can_be_saved(worker, _model_of(worker))
    except ConfigError:
        return False
    return True


def _model_of(worker: Worker) -> ModelOf:
    """Returns whose weights are the model."""
    return worker.run.recipe.make_scheme().model_of(worker.run.spec.servers)


def _check_can_be_saved(worker: Worker, model_of: ModelOf) -> None:
    """Raises ConfigError, with the way out."""
    if worker.end.closed:
        raise ConfigError(
            "pace.state_dict() after pace.close(): call it before; the model is yours, model.state_dict()"
        )
    steps = worker.model.work.steps_of_user
    if steps is not None and evaluates_again(steps.optimizer):
        raise ConfigError(
            "pace.state_dict(): LBFGS remembers earlier steps, which such a state cannot hold; save model.state_dict() "
            "and optimizer.state_dict(), and load both before paceline.join"
        )
    if model_of == "mean of workers":
        raise ConfigError(
            f"pace.state_dict(): under {worker.run.recipe.scheme} each worker has a model of its own, and no "
            "worker has them all; use `paceline launch --checkpoint-every 60 --resume auto`"
        )
    if worker.run.recipe.make_scheme().coordinator_counts:
        raise ConfigError(
            f"pace.state_dict(): under {worker.run.recipe.scheme} the coordinator has a part of the state, which no "
            "worker could keep; use `paceline launch --checkpoint-every 60 --resume auto`"
        )
    work = worker.model.work
    if not (work.begins and worker.run.node.role.whole):
        left = "" if work.begins else f", {work.left} steps before its end"
        raise ConfigError(
            f"pace.state_dict() in the middle of an exchange{left}: call it where pace.at_exchange is True"
        )


def _tensor(v: Any) -> Tensor:
    """Returns a vector as a tensor of its own."""
    numbers = torch.empty(len(v))
    v.copy_into(numbers)
    return numbers


# ---- loading -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LoadedState:
    """Holds a state that fits the run that it is loaded in. Raises ConfigError for any other."""

    state: Mapping[str, Any]
    recipe: Recipe
    rank: int
    workers: int
    servers: int

    def __post_init__(self) -> None:
        if not isinstance(self.state, Mapping) or self.state.get("paceline") != FORMAT:
            raise ConfigError(
                "join(state=...): this is no state of pace.state_dict(); give what torch.load returns of one"
            )
        if missing := [part for part in PARTS if part not in self.state]:
            raise ConfigError(f"join(state=...): the state has no {missing[0]!r}; it was cut or changed")
        if KEPT not in self.state["worker"]["facts"]:
            print(OLDER, file=sys.stderr)
        theirs, ours = self.state["identity"], identity_of(self.recipe, self.workers, self.servers)
        others = [name for name, value in ours.items() if theirs.get(name) != value and name != "workers"]
        if others:
            name = others[0]
            raise ConfigError(
                f"join(state=...): the state is of a run with {name} {theirs.get(name)!r}, and this one has "
                f"{ours[name]!r}; {WEIGHTS_ONLY}"
            )
        if not self._is_own and not (self.state["servers"] or self._one_for_all):
            what = f"worker {self.state['rank']} of {theirs['workers']}, and this is {self.rank} of {self.workers}"
            raise ConfigError(
                f"join(state=...): the state is that of {what}; under {self.recipe.scheme} each worker saves a file of "
                f"its own and loads it; {WEIGHTS_ONLY}"
            )

    @property
    def _same_workers(self) -> bool:
        """Returns True if as many workers take part as when the state was made."""
        return bool(self.state["identity"]["workers"] == self.workers)

    @property
    def _is_own(self) -> bool:
        """Returns True if the worker of this rank has saved it, of as many workers."""
        return self._same_workers and self.state["rank"] == self.rank

    @property
    def _common(self) -> bool:
        """Returns True if the workers hold one and the same model, and an optimizer's state that goes with it."""
        return by_round(self.recipe.make_scheme(), self.servers)

    @property
    def _one_for_all(self) -> bool:
        """Returns True if one worker's file will do for all: no worker makes steps of its own between exchanges."""
        return self._common and self._same_workers and not self.recipe.make_scheme().trains_locally

    def load_into(self, module: nn.Module) -> None:
        """Loads the weights. Raises ConfigError where they do not fit."""
        try:
            load_weights(module, self.state["model"], "join(state=...): the state")
        except ConfigError as error:
            what = str(error).rpartition(": ")[0]  # the rest names flags of `train`
            raise ConfigError(f"{what}; make the model as in the script that has saved it") from None

    def marked(self, recipe: Recipe) -> Recipe:
        """Returns the recipe of a run whose workers have loaded a state: servers take theirs, and workers that go on in
        rounds have to be in the same one."""
        common = self.state["worker"]["facts"]["common"] if self._common else {}
        moment = next((value for value in common.values() if isinstance(value, int)), 0)
        return dataclasses.replace(recipe, loaded=bool(self.state["servers"]), moment=moment)

    def progress(self) -> ResumedProgress:
        """Returns where this worker goes on."""
        samples, of_servers = int(self.state["samples"]), self.state["servers"]
        done = tuple((epoch, start, stop) for epoch, start, stop in self.state.get("done", ()))
        return ResumedProgress(
            samples=samples,
            memories=self._memories(),
            masters=self.state["masters"],
            of_servers=of_servers
            and ServerState(of_servers["vectors"], of_servers["numbers"], of_servers.get("role", {}), done),
            done=done,
            loaded=True,
        )

    def _entry(self) -> Position:
        """Returns where this worker stands; of another's file, an even part of what its own worker has not trained."""
        of, samples = self.state["worker"], int(self.state["samples"])
        steps, position = int(of["steps"]), int(of["position"])
        if self._is_own:
            return Position(steps, position, tuple(of["generators"]))
        mine = (samples - position) // (self.workers - 1) if self._same_workers else samples // self.workers
        return Position(round(steps * mine / position) if position else 0, mine, ())

    def _memories(self) -> WorkerState:
        """Returns what this worker remembers; of another worker's state only what is common to all."""
        of = self.state["worker"]
        facts, vectors, mine = of["facts"], of["vectors"], self._is_own
        names = {name for name in facts.get("model", ()) if name != WEIGHTS}
        own = {name: v for name, v in vectors.items() if name not in names and not name.startswith(f"{COMMON}.")}
        common = {**facts["common"], **under(COMMON, vectors)} if self._common else None
        return WorkerState(
            entry=self._entry(),
            rng=facts.get("rng") if mine else None,
            kept=facts.get(KEPT, {}) if mine else {},
            tensors=own if mine else {},
            counts=facts["counts"] if mine else {},
            scales=facts["scales"],
            common=common,
            numbers=facts["numbers"] if self._common else facts.get(RULE) if mine else None,
            optimizer={name: vectors[name] for name in names} if self._common else under(RULE, vectors),
            user=facts.get(USER) if mine else None,
        )
