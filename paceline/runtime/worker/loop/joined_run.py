"""Holds what the parts of a worker share: the run that it has joined, and its own model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paceline.core.coordination import control_messages as control
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.optim.unused_parameters import ZeroTensors
from paceline.live.control.session import Session
from paceline.live.node.node import Node
from paceline.runtime.checkpointing.worker_state import WorkerStateCapture
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.steps.local_work import LocalWork
from paceline.runtime.worker.steps.partial_steps import PartialSteps


@dataclass(frozen=True, slots=True)
class JoinedRun:
    """Describes a run in which training begins. former_steps: steps of earlier incarnations of this worker in it."""

    spec: ProcessSpec
    session: Session
    recipe: Recipe
    plan: control.Plan
    device: torch.device
    former_steps: int

    @property
    def rank(self) -> int:
        """Returns this worker's number."""
        return self.spec.who.index

    @property
    def node(self) -> Node:
        """Returns this worker's node."""
        return self.session.node

    @property
    def clock(self) -> int:
        """Returns what this worker's role calls its clock, or its round."""
        return self.session.node.role.progress()


@dataclass(frozen=True, slots=True)
class WorkerModel:
    """Holds the module as one vector, its batch-norm statistics, the work done on it, and the rule of updates made
    here."""

    flat: FlatModel
    buffers: Buffers
    work: LocalWork
    update: Any
    partial: PartialSteps

    @classmethod
    def of(
        cls,
        module: nn.Module,
        recipe: Recipe,
        spec: ProcessSpec,
        optimizer: torch.optim.Optimizer | None,
        samples_seen: int,
        flat: FlatModel | None = None,
    ) -> WorkerModel:
        """Makes the parts of a worker's model; `samples_seen`: by all workers before.

        `flat`: the vector of a module that several processes hold together.
        """
        if flat is None:
            by_rows = recipe.by_rows(spec.servers)
            flat = FlatModel(module, torch.device(spec.device), optimizer=optimizer, by_rows=by_rows)
        work = LocalWork(flat, recipe, optimizer)
        update = work.rule(meanwhile=recipe.make_scheme().worker(spec.servers).updates_meanwhile)
        update.samples_seen = samples_seen
        if spec.workers > 1 and recipe.make_scheme().uses_mean(spec.servers):
            update.zeros_unused = ZeroTensors(flat.tensors)  # a mean does not say what its members have used
        return cls(flat, Buffers(module, spec.buffers), work, update, PartialSteps(flat, optimizer))

    @property
    def device(self) -> torch.device:
        """Returns the device that the model is on."""
        return self.flat.device

    def capture(self, node: Node, recipe: Recipe, servers: int) -> WorkerStateCapture:
        """Returns what captures this worker's state for checkpoints."""
        return WorkerStateCapture(
            node,
            recipe.make_scheme(),
            servers,
            length=len(self.flat),
            work=self.work,
            buffers=self.buffers,
            update=self.update,
        )
