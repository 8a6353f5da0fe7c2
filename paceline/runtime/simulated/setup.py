"""Describes what is simulated: the configuration of a run, and the cluster that it pretends to run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.engine.data.partition_plan import parse_partition
from paceline.engine.model.loss import mean_loss
from paceline.engine.model.mixed_precision import Precision
from paceline.runtime.worker.steps.step_timer import measured_step
from paceline.runtime.worker.train_loop import build_model, load_data
from paceline.sim.cluster.model import Cluster, Device, Host, NetworkSpec


@dataclass(frozen=True, slots=True)
class Rounds:
    """Says when a look at a scheme ends: each worker has made so many steps and exchanges, or `steps_max` steps."""

    steps: int
    exchanges: int = 0
    steps_max: int = 0

    def seen(self, steps: int, exchanges: int) -> bool:
        """Returns True if enough was seen of a worker."""
        enough = exchanges >= self.exchanges or steps >= max(self.steps, self.steps_max)
        return steps >= self.steps and enough


@dataclass(frozen=True, kw_only=True)
class SimulationSetup:
    """Describes a simulated run. Raises ConfigError for settings that exist in live runs only.

    timing_only   vectors have a size and no numbers; nothing is trained
    model_length  parameters of the model; 0 for those of the configured one
    rounds        ends the run once enough was seen of every worker; None for the rules of the configuration
    events_max    or after so many events; 0 for any number
    """

    config: Config
    cluster: Cluster
    timing_only: bool = False
    model_length: int = 0
    rounds: Rounds | None = None
    events_max: int = 0

    def __post_init__(self) -> None:
        check(self.config)
        if parse_partition(self.config.data.partition).leased and self.cluster.hazards:
            raise ConfigError(
                f"--partition {self.config.data.partition}: not where messages are lost; leave out the [hazards] of "
                "the cluster file, or give --partition uniform"
            )
        if not self.rounds:
            check_end(self.config, timing_only=self.timing_only)

    @property
    def at_hand(self) -> bool:
        """Returns True if the training is that of --model on --data. Otherwise no data set bounds what a mini-batch
        has."""
        return not (self.model_length or self.rounds)

    @property
    def slowdowns(self) -> list[float]:
        """Returns, by rank, how many times slower each worker is than the reference device."""
        return [seconds / self.cluster.step_s for seconds in self.cluster.seconds_per_step()]


def check(config: Config) -> None:
    """Raises ConfigError for what runs have in real time only."""
    if config.codecs().low_rank:
        raise ConfigError("--codec powersgd is not simulated: take topk or sign, or train for real")


def check_end(config: Config, *, timing_only: bool) -> None:
    """Raises ConfigError when nothing would end a run without a model, or when an accuracy is to end it."""
    stop = config.stop
    if timing_only and not (stop.epochs or stop.samples or stop.seconds or stop.steps):
        raise ConfigError("--timing-only trains no model: give --epochs, --seconds or --steps to end it")
    if timing_only and stop.target_accuracy:
        raise ConfigError(
            f"--target-accuracy {stop.target_accuracy:g}: with --timing-only no model is trained, so none gets there; "
            "leave it out, or 0 where a file has it"
        )


def cluster_of(config: Config, network: NetworkSpec, step_s: Callable[[], float]) -> Cluster:
    """Returns the cluster that `--workers`, `--servers`, `--slowdown` and `--step-ms` describe: a host for each party.

    `step_s` is called where `--step-ms` says nothing, since measuring a step takes time. Raises ConfigError for
    workers that join late.
    """
    if config.cluster.beginning < config.cluster.workers:
        raise ConfigError(
            f"--initial-workers {config.cluster.initial_workers} is for live runs: here workers come and go as the "
            "faults of a cluster file say (docs/simulator.md)"
        )
    base = config.cluster.step_ms / 1000 or step_s()
    if config.cluster.slowdown:
        hosts = [
            Host(name=f"worker-{rank}", devices=(Device(name="cpu", factor=slowdown),))
            for rank, slowdown in enumerate(config.cluster.slowdown)
        ]
    else:
        hosts = [Host(name="workers", count=config.cluster.workers, devices=(Device(name="cpu"),))]
    if config.cluster.servers:
        hosts.append(Host(name="servers", count=config.cluster.servers, servers=1))
    return Cluster(hosts=tuple(hosts), network=network, step_s=base)


def measure_step(config: Config) -> float:
    """Returns the seconds of a step of the configured model on this machine, with as many threads as a worker has."""
    splits = load_data(config)
    model = build_model(config, splits)
    x, y = splits.train.first(config.data.batch_size)
    precision = Precision(config.model.precision, model, "cpu")
    torch.set_num_threads(config.cluster.threads)
    return measured_step(lambda: precision.backward(lambda: mean_loss(model(x), x, y)), model, repeats=9)


def tensors_of(config: Config) -> tuple[int, ...]:
    """Returns the parameters of the configured model, by tensor."""
    return tuple(p.numel() for p in build_model(config, load_data(config)).parameters())
