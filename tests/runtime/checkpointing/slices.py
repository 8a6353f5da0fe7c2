"""Slices of servers as the evaluator reads them."""

from __future__ import annotations

import json
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paceline.config import Config, build
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost, TimedOut
from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.fault_tolerance.snapshots import FORGET
from paceline.core.paramserver.gated_server import Push
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import make
from paceline.core.sharding import Layout
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.optim.optimizers import SGD
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.live.node.published_state import STATE, PublishedState
from paceline.live.state.slice_state import publish_state
from paceline.runtime.checkpointing.slice_capture import NOTHING, WEIGHTS
from paceline.runtime.checkpointing.writer import CheckpointWriter

WORKERS, LENGTH = 3, 6


SAMPLES = (32, 17, 32)


OF_A_WORKER = {
    "numbers": {},
    "lock_step": True,
    "model": [WEIGHTS],
    "vectors": [WEIGHTS],
    "clock": 2,
    "entries": {2: [2, 64, ["AAAA"]]},
}


RECIPE = OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9)


class Node:
    """Shows the slices' states, as two servers would."""

    def __init__(self, states: Sequence[SliceState], error: Exception | None = None) -> None:
        self.states, self.error = states, error
        self.captures = [0] * len(states)  # of which one each server shows slices
        self.deaf: set[int] = set()  # servers that go on showing those of the capture before

    def capture(self, order: control.Capture) -> None:
        if order.version != FORGET:
            self.captures = [old if at in self.deaf else order.number for at, old in enumerate(self.captures)]

    def version_of(self, who: Party, what: str) -> float:
        return 0.0

    def read_several(self, who: Party, wanted: Sequence[tuple[str, int]]) -> list[PublishedState]:
        of = self.states[who.index]
        facts = {**of.facts, "capture": self.captures[who.index]}
        return [publish_state(facts, of.vectors, NOTHING) for _ in wanted]

    def read_published(self, to: Any, what: str) -> PublishedState:
        name = what.rpartition("/")[2]
        if isinstance(to, int) and name == STATE and not isinstance(self.error, TimedOut):
            return PublishedState(v=NOTHING, facts=json.dumps(OF_A_WORKER))
        if self.error:
            raise self.error
        if isinstance(to, int):
            raise PeerLost(f"worker {to}")
        return PublishedState(v=Flat.wrap(torch.cat([of.vectors[name].value() for of in self.states])))

    def now(self) -> float:
        return 0.0


def session_of(node: Node) -> Any:
    notes: list[Any] = []
    session = types.SimpleNamespace(
        node=node,
        lost_ranks=(),
        shares_left=None,
        departed=(),
        total_samples=0,
        tell_servers=lambda count, message: node.capture(message),
        tell_worker=lambda rank, message: True,
        reports=types.SimpleNamespace(note=notes.append, flush=lambda: None),
    )
    session.attach = lambda callbacks: setattr(session, "callbacks", callbacks)
    return session


def keeper(
    out: Path, node: Node, layout: Layout, session: Any = None, store: str = "", scheme: str = "bsp"
) -> CheckpointWriter:
    session = session or session_of(node)
    module, run = nn.Linear(LENGTH, 1, bias=False), config(out, len(layout.holders), store, scheme)
    return CheckpointWriter(run, session, layout, FlatModel(module), module, 0)


def config(out: Path, servers: int = 2, store: str = "", scheme: str = "bsp") -> Config:
    return build(
        {
            "run": {"scheme": scheme, "out": str(out)},
            "cluster": {"workers": WORKERS, "servers": servers},
            "optimizer": {"name": "sgd", "momentum": 0.9},
            "checkpoint": {"store": store},
        }
    )


def trained(part: slice, order: Sequence[int]) -> tuple[Role, SGD]:
    """A slice after two rounds; `order`: whose push comes first."""
    rule, scheme = SGD(RECIPE), make("bsp", {})
    assert scheme.Server is not None
    w = Flat.wrap(torch.ones(LENGTH)[part].clone())
    role = scheme.Server(scheme, RoleContext(me=0, workers=tuple(range(WORKERS)), w=w, update=rule))
    for clock in (1, 2):
        for rank in order:
            g = Flat.wrap((torch.arange(LENGTH) * 0.1 + rank - 0.5 * clock)[part].clone())
            list(role.on(0.0, rank, Push(g=g, clock=clock, samples=SAMPLES[rank])))
    return role, rule
