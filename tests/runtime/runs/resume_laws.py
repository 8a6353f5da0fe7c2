"""What the law of resuming is tried on: every scheme with small rounds, so that most steps lie in the middle of one."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from benchmarks._small_rounds import SMALL
from paceline.core.errors import ConfigError
from paceline.core.scheme import make, names
from tests.runtime.own_loops import MakeOptimizer, toy_data

BATCH, STEPS = 4, 11
DATA = toy_data(40)


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.02)


OPTIMIZERS: dict[str, MakeOptimizer] = {"momentum": momentum, "adamw": adamw}


@dataclass(frozen=True, kw_only=True)
class Law:
    scheme: str
    servers: int
    optimizer: str
    parameters: dict[str, Any] = field(default_factory=dict)
    workers: int = 1

    @property
    def at_every_step(self) -> bool:
        """Returns True where the law is tried at every step, and not at some."""
        return self.optimizer == "momentum" and self.servers < 2 and self.workers == 1

    @property
    def gives_states(self) -> bool:
        """Returns True where `pace.state_dict` gives a state: of one model, of which the coordinator has no part."""
        scheme = make(self.scheme, self.parameters)
        return scheme.model_of(self.servers) != "mean of workers" and not scheme.coordinator_counts

    def __str__(self) -> str:
        given = [f"{name}={value}" for name, value in self.parameters.items()]
        return "-".join([self.scheme, f"on{self.servers}", self.optimizer, f"w{self.workers}", *given])


def laws(workers: int = 1) -> list[Law]:
    """Every scheme, with each of its variants, optimizers and numbers of servers.

    Of two workers those in lock-step whose rounds do not follow measured times.
    """
    found = []
    for name in names():
        for parameters in SMALL.get(name, [{}]):
            for servers in (0, 1, 2):
                for optimizer in OPTIMIZERS if servers else ("momentum",):
                    try:
                        make(name, parameters).check(workers, servers)
                    except ConfigError:
                        continue
                    scheme = make(name, parameters)
                    if workers > 1 and (not scheme.lock_step or not scheme.equal_rounds or scheme.needs_peers):
                        continue
                    found.append(
                        Law(scheme=name, servers=servers, optimizer=optimizer, parameters=parameters, workers=workers)
                    )
    return found


def laws_of_commands(workers: int = 1) -> list[Law]:
    """The same with fewer optimizers and numbers of servers, since a run of the command takes a second.

    `hybrid` is left out: its phases begin anew, of which a line warns.
    """
    few = [law for law in laws(workers) if law.optimizer == "momentum" and law.scheme != "hybrid"]
    most = {(law.scheme, str(law.parameters)): law for law in few if law.servers < 2}
    return list(most.values())


def through_a_file(state: Any) -> Any:
    """What a script gets that saves with `torch.save` and loads without trust."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
