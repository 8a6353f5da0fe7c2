"""Training loops of one's own as threads of this process: what a script does after `paceline.join`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from paceline.config import Config, build
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.engine.forward_samples import SamplesOf
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.vectors.flat import FlatMemory
from paceline.launch.local.train import Silent
from paceline.launch.own_run import Evaluate, begin_at
from paceline.live.net.inprocess_transport import Hub
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.numpy_memory import PlainMemory
from paceline.live.protocol.transport import Transport
from paceline.observe.runs.summary import Summary
from paceline.runtime.checkpointing.resume import config_of_loop, kind_of
from paceline.runtime.evaluator.evaluator import evaluate as evaluate_model
from paceline.runtime.evaluator.subject import subject_of_loop
from paceline.runtime.process_main import take_part
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.spec.who_updates import fitted
from paceline.runtime.supervisor.supervisor import RunSupervisor
from paceline.runtime.thread_launcher import END_SECONDS_MIN, ThreadLauncher
from paceline.runtime.worker.pace import Pace

Loop = Callable[[Pace, nn.Module], None]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Held = Callable[[nn.Module], Iterable[nn.Parameter]]
"""What of a model its optimizer gets."""


def toy_data(n: int = 90) -> TensorDataset:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, (x.sum(1) > 0).long())


def toy_model() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    generator = torch.Generator().manual_seed(2)
    for p in model.parameters():
        nn.init.normal_(p, std=0.5, generator=generator)
    return model


def plain_steps(
    pace: Pace,
    model: nn.Module,
    data: TensorDataset,
    *,
    batch_size: int = 8,
    epochs: int = 2,
    partition: str = "uniform",
) -> int:
    """The loop of the README, with equal shares; returns how many steps there were."""
    steps = 0
    for x, y in pace.batches(data, batch_size, epochs=epochs, partition=partition):
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step()
        steps += 1
    return steps


class Sockets:
    """In place of a hub: the parties are threads of this process all the same, but send over TCP."""

    token = ""

    def coordinator(self, token: str, failed: Callable[[BaseException], None]) -> Transport:
        self.token = token
        return TcpTransport(party.COORDINATOR, token, PlainMemory(), failed=failed)

    def transport(self, me: Party, incarnation: int = 0) -> Transport:
        return TcpTransport(me, self.token, FlatMemory(), incarnation=incarnation)


class LoopLauncher(ThreadLauncher):
    """A thread launcher whose workers run `loop`."""

    def __init__(
        self,
        hub: Any,
        scheme: str,
        loop: Loop,
        optimizer: MakeOptimizer,
        parameters: dict[str, Any],
        make_model: Callable[[], nn.Module],
        held: Held,
        clip_norm: float = 0.0,
        evaluate: Evaluate | None = None,
        states: Mapping[int, Any] | None = None,
        samples_of: SamplesOf | None = None,
    ) -> None:
        super().__init__(hub)
        self._samples_of = samples_of
        self._evaluate, self._states = evaluate, states or {}
        self._clip_norm = clip_norm
        self._optimizer, self._make_model, self._held = optimizer, make_model, held
        self._hub_of_workers, self._scheme, self._loop, self._parameters = hub, scheme, loop, parameters
        self.models: dict[int, nn.Module] = {}
        self._workers: list[threading.Thread] = []

    def prepare(self, config: Config) -> int:
        return 1

    def start(self, spec: ProcessSpec) -> None:
        if spec.who.kind == "server":
            super().start(spec)
            return
        live = self._live if spec.who.kind == "worker" else self._judge
        thread = threading.Thread(target=live, args=(spec,), name=spec.party, daemon=True)
        self._workers.append(thread)
        thread.start()

    def _made(self, spec: ProcessSpec) -> tuple[nn.Module, torch.optim.Optimizer, Recipe]:
        model = self._make_model()
        optimizer = self._optimizer(self._held(model))
        scheme = make(self._scheme, self._parameters)
        told = replace(recipe_of(optimizer, trained_of(model, optimizer)), clip_norm=self._clip_norm)
        recipe = Recipe(scheme=self._scheme, parameters=scheme.parameters(), optimizer=told)
        return model, optimizer, fitted(recipe, spec.servers)

    def _judge(self, spec: ProcessSpec) -> None:
        """What `join` does in the evaluator's process."""
        model, optimizer, recipe = self._made(spec)
        subject = subject_of_loop(model, optimizer, self._evaluate, kind_of(recipe))
        config = config_of_loop(spec.config, recipe)
        transport = self._hub_of_workers.transport(spec.who, spec.incarnation)
        self.ended.put(take_part(spec, transport, lambda session: evaluate_model(config, spec, session, subject)))

    def _live(self, spec: ProcessSpec) -> None:
        model, optimizer, recipe = self._made(spec)
        self.models[spec.who.index] = model
        try:
            recipe, behind = begin_at(model, recipe, spec, self._states.get(spec.who.index), optimizer)
        except ConfigError as error:
            self.ended.put(ProcessEnded(who=spec.who, why=f"{spec.party}: {error}"))
            return
        session = spec.session(self._hub_of_workers.transport(spec.who))
        why = ""
        try:
            session.hello(spec.coordinator, spec.device)
            with Pace(
                model, recipe, spec, session, optimizer=optimizer, behind=behind, samples_of=self._samples_of
            ) as pace:
                self._loop(pace, model)
        except Exception as error:
            why = f"{spec.party}: {type(error).__name__}: {error}"
        finally:
            session.close()
        self.ended.put(ProcessEnded(who=spec.who, why=why))

    def end(self, seconds: float) -> None:
        super().end(seconds)
        for thread in self._workers:
            thread.join(END_SECONDS_MIN)
        assert not any(thread.is_alive() for thread in self._workers)


def plain_sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def run_loops(
    out: Path,
    scheme: str,
    loop: Loop,
    *,
    workers: int = 3,
    servers: int = 1,
    optimizer: MakeOptimizer = plain_sgd,
    make_model: Callable[[], nn.Module] = toy_model,
    held: Held = nn.Module.parameters,
    cluster: dict[str, Any] | None = None,
    sockets: bool = False,
    hub: Any = None,
    clip_norm: float = 0.0,
    stop: dict[str, Any] | None = None,
    evaluate: Evaluate | None = None,
    states: Mapping[int, Any] | None = None,
    checkpoint: dict[str, Any] | None = None,
    samples_of: SamplesOf | None = None,
    **parameters: Any,
) -> tuple[Summary, dict[int, nn.Module]]:
    """`workers` threads of `loop` in one run; its summary and the model each thread ended with. `states`: by rank."""
    sockets = sockets or hub is not None
    hub = hub or (Sockets() if sockets else Hub())
    launcher = LoopLauncher(
        hub, scheme, loop, optimizer, parameters, make_model, held, clip_norm, evaluate, states, samples_of
    )
    config = build(
        {
            "run": {"scheme": "bsp", "out": str(out)},
            "cluster": {"workers": workers, "servers": servers, "timeout": 20.0, "device": "cpu", **(cluster or {})},
            "stop": {"epochs": 0.0, "until_stopped": True, **(stop or {})},
            "checkpoint": {"every": 0.0, **(checkpoint or {})},
            "evaluation": {"every": 0.02},
        }
    )
    coordinator = hub.coordinator if sockets else lambda token, failed: hub.transport(party.COORDINATOR, failed)
    evaluator = evaluate is not None or config.checkpoint.every > 0
    supervisor = RunSupervisor(config, coordinator, launcher, Silent(), evaluator=evaluator, script=True)
    return supervisor.run(), launcher.models
