"""Hands what the user's optimizer remembers at `join` to those who make its steps, and gives it back.

    at join, of worker 0      to the servers, where they make the steps; else to the other workers' optimizers
    optimizer.state_dict()    at an exchange, read from those who make the steps; elsewhere it is an error
    pace.close()              what they remember at the end is in `optimizer.state`, as after the plain loop

Mostly a worker makes its steps by that optimizer, which then has its state itself. A rule of our own makes them where
updates come while the loop computes (adpsgd).
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.errors import ConfigError, PeerLost, TimedOut
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.several_models import SeveralOptimizers
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.evaluated_weights import evaluates_others
from paceline.engine.optim.optimizers import ServerOptimizer
from paceline.engine.optim.own_optimizer import OwnOptimizer, evaluates_again, packed, recall
from paceline.engine.optim.servers_state import from_servers, remembers, to_servers
from paceline.engine.vectors.flat import Flat
from paceline.live.control.session import Session
from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import fetch, kept, publish_state
from paceline.runtime.checkpointing.slice_capture import NOTHING, ROLE, WEIGHTS, load_rule, state_of_rule
from paceline.runtime.checkpointing.slice_numbers import of_slice, tensors_in
from paceline.runtime.checkpointing.state_on_request import ServerState, read_servers
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.who_updates import servers_update
from paceline.runtime.worker.shared_rule import SharedRule

AT_JOIN = "at join"
"""Under this name worker 0 publishes what its optimizer remembers, until training starts."""
LOADED_LATE = (
    "paceline: optimizer.load_state_dict() after paceline.join changes nothing where servers make the steps: load the "
    "state before paceline.join"
)
CLEARED = (
    "paceline: optimizer.state.clear() changes nothing where servers make the steps: to begin anew call pace.close() "
    "and paceline.join again, with a new optimizer"
)
IN_BETWEEN = "optimizer.state_dict() in the middle of an exchange: call it where pace.at_exchange is True"
BEGINS_ANEW = "what the optimizer remembers of earlier steps begins anew"


class StateElsewhere(defaultdict[Any, Any]):
    """Is the state of an optimizer whose steps are made elsewhere: empty. A line says once that to clear it changes
    nothing."""

    said = False

    def clear(self) -> None:
        if not self.said:
            self.said = True
            print(CLEARED, file=sys.stderr)
        super().clear()


def state_at_join(
    module: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, servers: int, samples: int
) -> tuple[Recipe, ServerState | None]:
    """Returns the recipe of worker 0, whose `optimizer` may remember earlier steps, and what the servers are given.

    samples: of the run before now."""
    if evaluates_again(optimizer) or not remembers(optimizer):  # LBFGS's own is that of all parameters together
        return recipe, None
    given = None
    if recipe.of_rule(recipe.optimizer) != recipe.optimizer:
        print(f"paceline: {BEGINS_ANEW}: {recipe.scheme} has a momentum of its own", file=sys.stderr)
        return recipe, None
    if servers_update(recipe.make_scheme(), servers):
        given = to_servers(recipe.optimizer, optimizer, list(trained_of(module, optimizer).values()))
        if given is None:
            kind = type(optimizer).__name__
            print(f"paceline: {BEGINS_ANEW}: servers cannot be given that of {kind} here", file=sys.stderr)
            return recipe, None
    vectors, numbers = given or ({}, {})
    state = ServerState(vectors, {**numbers, "samples_seen": float(samples)}) if given else None
    return dataclasses.replace(recipe, begun=True), state


def say_dropped_of_ranks(optimizer: torch.optim.Optimizer, recipe: Recipe, servers: int) -> None:
    """Prints that servers are not given what the optimizers of a worker's ranks remember."""
    if remembers(optimizer) and servers_update(recipe.make_scheme(), servers):
        print(f"paceline: {BEGINS_ANEW}: the ranks of a worker cannot hand it to servers", file=sys.stderr)


class SharedOptimizerState:
    """Carries the memory of one worker's optimizer."""

    def __init__(
        self,
        session: Session,
        recipe: Recipe,
        servers: int,
        flat: FlatModel,
        optimizer: torch.optim.Optimizer | None,
        update: ServerOptimizer,
    ) -> None:
        """`update`: what turns gradients into weights on this worker, where it does so."""
        known = optimizer is not None and not flat.in_ranks and not evaluates_again(optimizer)
        self._optimizer = optimizer if known else None
        self._session, self._recipe, self._flat, self._update = session, recipe, flat, update
        self._of_rule = recipe.of_rule(recipe.optimizer)
        self._on_servers = servers_update(recipe.make_scheme(), servers)
        local = recipe.make_scheme().trains_locally or isinstance(update, OwnOptimizer)
        self._rule = None if self._on_servers or local else update
        self._layout: Any = None
        self._shown: list[str] = []  # under which names it is published
        self._hooks: list[Any] = []

    # ---- at join -----------------------------------------------------------------------------------------
    def show(self) -> None:
        """Publishes it to the other workers, as worker 0, where workers make the steps."""
        if self._optimizer is None or self._on_servers or not self._recipe.begun:
            return
        state = packed(self._optimizer, self._flat.parameters)
        vectors = {name: v for name, v in state.items() if isinstance(v, Tensor)}
        facts = {name: v for name, v in state.items() if name not in vectors}
        published = self._session.node.published
        for name, v in vectors.items():
            published[kept(AT_JOIN, name)] = functools.partial(lambda v, _slice: Flat.wrap(v), v)
        self._shown = [kept(AT_JOIN, name) for name in (*vectors, STATE)]
        published[kept(AT_JOIN, STATE)] = lambda _slice: publish_state(facts, vectors, NOTHING)

    def take(self, plan: control.Plan) -> None:
        """Takes that of worker 0, unless this optimizer remembers steps of its own model. Raises PeerLost."""
        begun = Recipe.from_json(plan.optimizer).begun
        if self._optimizer is None or self._on_servers or not begun:
            return
        if self._recipe.make_scheme().trains_locally and remembers(self._optimizer):
            return  # each worker's own, as each has saved it
        self._session.reach(party.worker(0))
        (state,) = fetch(self._session.node, party.worker(0), [0], AT_JOIN)
        own = {name: v.value() for name, v in state.vectors.items()}
        recall(self._optimizer, self._flat.parameters, {**state.facts, **own})

    def give_rule(self, samples: int) -> None:
        """Gives it to the rule that makes this worker's steps, if that is ours."""
        if self._rule is None or self._optimizer is None or not remembers(self._optimizer):
            return
        if given := to_servers(self._of_rule, self._optimizer, self._flat.parameters):
            vectors, numbers = given
            load_rule(self._rule, {**numbers, "samples_seen": float(samples)}, vectors)

    # ---- while training ----------------------------------------------------------------------------------
    def begin(self, plan: control.Plan, whole: Callable[[], bool]) -> None:
        """From now on `state_dict` reads it where the steps are made. `whole()`: is no exchange under way?"""
        self._layout = plan.layout
        self._session.node.published.withdraw(self._shown)
        if self._optimizer is None or not (self._on_servers or self._rule):
            return
        for member in self._members():
            member.state = StateElsewhere(dict)  # whoever makes the steps has it
            member._opt_called = True  # type: ignore[attr-defined]  # torch's schedulers look for steps before theirs
            self._hooks += [
                member.register_state_dict_pre_hook(functools.partial(self._before_dict, whole)),
                member.register_state_dict_post_hook(self._after_dict),
                member.register_load_state_dict_post_hook(lambda _: print(LOADED_LATE, file=sys.stderr)),
            ]

    def _before_dict(self, whole: Callable[[], bool], _: torch.optim.Optimizer) -> None:
        if not whole():
            raise ConfigError(IN_BETWEEN)
        self._read()

    def _after_dict(self, *_: Any) -> None:
        for member in self._members():
            member.state = StateElsewhere(dict)

    def _members(self) -> list[torch.optim.Optimizer]:
        optimizer = self._optimizer
        assert optimizer is not None
        return list(optimizer.members.values()) if isinstance(optimizer, SeveralOptimizers) else [optimizer]

    def _read(self) -> None:
        """Fills the optimizer with what the servers, or our rule, remember. Raises PeerLost or TimedOut."""
        assert self._optimizer is not None
        if self._rule is not None:
            numbers, long = state_of_rule(self._rule, len(self._flat))
            vectors = {name: v.value() for name, v in long.items()}
            parts: Sequence[slice] = [slice(0, len(self._flat))]
        else:
            node = self._session.node
            state = read_servers(node, node.me.index, self._layout, self._flat.tensors)
            numbers, parts = state.numbers, self._layout.slices
            vectors = {name: v for name, v in state.vectors.items() if name != WEIGHTS and not name.startswith(ROLE)}
        parameters = [p for p in self._flat.parameters if p.numel()]
        if self._of_rule.by_path is None:
            from_servers(self._of_rule, vectors, numbers, self._optimizer, parameters)
            return
        lengths = [p.numel() for p in parameters]
        for part in parts:  # each slice has packed its own tensors
            first, count = tensors_in(part, lengths)
            own = {name: v[part] for name, v in vectors.items()}
            inside = parameters[first : first + count]
            from_servers(self._of_rule, own, of_slice(numbers, part, lengths), self._optimizer, inside)

    # ---- at the end --------------------------------------------------------------------------------------
    def take_final(self, holder: int) -> None:
        """Fills the optimizer for good, while the servers are still there; without them it begins anew.

        One that evaluates other weights than it trains goes by its state, so that has to be of the moment of the final
        model, which worker `holder` has. Raises PeerLost.
        """
        if evaluates_others(self._optimizer) and holder != self._session.node.me.index:
            SharedRule(self._session.node, self._update, len(self._flat)).take(holder)
        if self._hooks:
            try:
                self._read()
            except (PeerLost, TimedOut) as error:
                print(f"paceline: {BEGINS_ANEW} after this run: {error}", file=sys.stderr)

    def end(self) -> None:
        """Gives `state_dict` back to the optimizer."""
        for hook in self._hooks:
            hook.remove()
        for member in self._members() if self._hooks else ():
            member.state = defaultdict(dict, member.state)
        self._hooks.clear()
