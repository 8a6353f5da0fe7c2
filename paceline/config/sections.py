"""The sections of a configuration: every option with its default, its help and its limits.

A section is a frozen dataclass; each field carries its help, its limits and, where the plain field name would not do,
its flag.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from paceline.codec import read
from paceline.codec.pipeline.policy import EXACT_BELOW
from paceline.core.collective import PEERS
from paceline.core.paramserver.gradient_check import OFF, REJECT, STRIKES_OF, WARN
from paceline.core.paramserver.robust_mean import NONE, RULES
from paceline.core.scheme import Limits, lookup
from paceline.core.sharding import parse_shards
from paceline.engine import specs
from paceline.engine.data.partition_plan import parse_partition
from paceline.live.addresses import is_loopback


def option(default: Any, help: str, *, flag: str = "", **limits: Any) -> Any:
    """A field of a section: default, help, flag (the field's name by default), and limits as for a scheme."""
    return field(default=default, metadata={"limits": Limits(help=help, **limits), "flag": flag})


def check_device(text: str) -> None:
    for device in text.split(","):
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise ValueError(f"{device!r} is no device; there are auto, cpu, cuda and cuda:N")


def check_strikes(strikes: int) -> None:
    if strikes == 1:
        raise ValueError("one refused contribution is no habit: give 2 or more, or 0 to put nobody out")


TORCH_CARRIERS = ("gloo", "nccl", "mpi")
CARRIERS = ("auto", "servers", *PEERS, *TORCH_CARRIERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    scheme: str = option("esync", "synchronisation scheme; see `paceline schemes`", check=lookup)
    seed: int = option(1, "seeds weights, shares and batches", low=0, high=2**53)
    out: str = option("", "folder for what the run leaves (default: runs/<time>-<scheme>)")
    hook: str = option("", "module:function of your own, called with each record of the trace; several with commas")
    verbose: int = option(
        0, "1, or -v: connections as they come and go, in logs/ of --out; 2, or -vv: each message", high=2
    )
    trace_mb: float = option(512.0, "MiB of the trace, whose later part becomes coarser to fit; 0: any", low=0)

    @property
    def trace_bytes(self) -> int:
        return round(self.trace_mb * 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    workers: int = option(4, "number of workers", low=1, high=100_000)
    initial_workers: int = option(
        0, "so many of --workers begin, the others may come while training goes on (`paceline grow`); 0: all", low=0
    )
    servers: int = option(1, "number of server shards; 0 trains by collectives alone", low=0, high=10_000)
    slice_mb: float = option(
        4.0, "MiB of weights that travel and are updated as one; 0: a server's whole shard", low=0, high=2**20
    )
    shards: str = option(
        "measured",
        "how much of the model each server holds: measured (by its speed and links), equal, or fractions: 0.5,0.3,0.2",
        check=parse_shards,
    )
    streams: int = option(
        0,
        "TCP streams that large vectors are spread over; 0: as the round trip asks for, 1 on one host",
        low=0,
        high=16,
    )
    slowdown: tuple[float, ...] = option((), "emulate: how many times slower each worker is, e.g. 1,1,2,8", low=1e-3)
    step_ms: float = option(0.0, "emulate: a step lasts at least this many ms times the worker's slowdown", low=0)
    device: str = option("auto", "auto, cpu, cuda:N, or one for each worker: cuda:0,cuda:1,cpu,cpu", check=check_device)
    overlap: str = option(
        "auto",
        "communicate while computing, gradients leave as backward makes them: auto does unless all parties share the "
        "cores of one host and there are too few",
        choices=("auto", "on", "off"),
    )
    threads: int = option(1, "CPU threads of each worker; of a script, unless OMP_NUM_THREADS is set", low=1)
    transport: str = option(
        "auto",
        "how vectors pass between processes of one host: shm shares memory, tcp does not, auto shares it where it can",
        choices=("auto", "shm", "tcp"),
    )
    bind: str = option("127.0.0.1", "address on which the parties listen; beyond loopback always under TLS")
    tls: str = option(
        "auto",
        "TLS 1.3 with certificates of the run's own: auto is on where --bind leads beyond this machine",
        choices=("auto", "on", "off"),
    )
    allreduce: str = option("auto", "who averages among equals (docs/carriers.md)", choices=CARRIERS)
    timeout: float = option(600.0, "seconds any single wait may take", low=1)
    dead_after: float = option(5.0, "seconds of silence after which a party is given up", low=1)
    stuck_after: float = option(
        300.0,
        "seconds, and 20 of its usual steps, that a worker may be at one mini-batch before it is given up; 0: for ever",
        low=0,
    )
    restarts: int = option(3, "how often each lost worker, and the evaluator, is started again", low=0)
    min_workers: int = option(1, "with fewer workers left the run ends", low=1)
    ack: str = option(
        "memory",
        "what was answered is safe: memory: in the server alone, so that all go back to a snapshot when it is lost; "
        "replica: also in the next server, so that nothing is lost",
        choices=("memory", "replica"),
    )
    snapshot_every: float = option(
        30.0, "seconds between two snapshots that a lost server is replaced from; 0: a lost server ends the run", low=0
    )

    @property
    def beginning(self) -> int:
        """How many workers are there at the beginning: those of the lowest ranks."""
        return self.initial_workers or self.workers

    @property
    def secured(self) -> bool:
        """Are TCP connections under TLS?"""
        return self.tls == "on" or (self.tls == "auto" and not is_loopback(self.bind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    up: str = option("none", "codec of what workers send; see `paceline codecs`", flag="codec", check=read)
    down: str = option("none", "codec of what servers send", flag="codec-down", check=read)
    exact_below: int = option(
        EXACT_BELOW, "vectors and tensors of fewer numbers travel as they are", flag="codec-exact-below", low=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    name: str = option("digits", "data set", flag="data", choices=specs.DATASETS)
    directory: str = option(
        "",
        "folder of the files of mnist or fashion-mnist, or its address (s3://..., webhdfs://...) (default: download)",
        flag="data-dir",
    )
    samples: int = option(4096, "size of synthetic data", low=16)
    partition: str = option(
        "uniform",
        "who gets which samples: uniform, speed, class, dirichlet:ALPHA, fractions:A,B,..., file:PATH, queue[:N]",
        check=parse_partition,
    )
    batch_size: int = option(32, "samples a worker's step", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str = option("mlp", "network", flag="model", choices=specs.MODELS)
    width: float = option(1.0, "multiplies the network's channels or hidden units", low=1e-3, high=64)
    dropout: float = option(0.0, "part of the last layer's inputs that is dropped while training", low=0, high=0.99)
    buffers: str = option("average", "batch-norm statistics of the workers' models", choices=("average", "local"))
    precision: str = option(
        "fp32",
        "of forward and backward; weights and what is exchanged stay fp32; fp16 needs GPUs",
        choices=specs.PRECISIONS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    name: str = option("sgd", "optimizer", flag="optimizer", choices=specs.OPTIMIZERS)
    lr: float = option(0.15, "learning rate on the mean loss", low=0)
    momentum: float = option(0.0, "momentum of SGD and LARS; the others have beta1", low=0, high=1)
    nesterov: bool = option(False, "SGD with Nesterov's momentum")
    weight_decay: float = option(0.0, "weight decay", low=0)
    beta1: float = option(0.9, "Adam's first decay", low=0, high=1)
    beta2: float = option(0.999, "Adam's second decay", low=0, high=1)
    eps: float = option(1e-8, "Adam's epsilon", low=0)
    trust: float = option(0.001, "LARS's trust coefficient", low=0)
    clip_norm: float = option(0.0, "a longer gradient is shortened to this norm before it is used; 0: never", low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """Lengths in epochs: passes over the training set by all workers together."""

    name: str = option("constant", "learning-rate schedule", flag="schedule", choices=specs.SCHEDULES)
    warmup: float = option(0.0, "epochs of linear warm-up", low=0)
    every: float = option(30.0, "step: epochs between two reductions", flag="schedule-every", low=1e-6)
    factor: float = option(0.1, "step: what each reduction multiplies by", flag="schedule-factor", low=0, high=1)
    floor: float = option(0.0, "cosine: the last factor", flag="schedule-floor", low=0, high=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """See docs/numbers.md."""

    mode: str = option(
        WARN,
        "what servers refuse: reject what is not finite or wild, warn what is not finite, off nothing",
        flag="gate",
        choices=(OFF, WARN, REJECT),
    )
    factor: float = option(
        3.0, "wild is a norm above this many times the running median of all workers'", flag="gate-factor", low=1.01
    )
    strikes: int = option(
        10,
        "so many refused of a worker's last 100 contributions, while those of others pass, put it out; 0: never",
        flag="gate-strikes",
        low=0,
        high=STRIKES_OF,
        check=check_strikes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Robust:
    """See docs/numbers.md."""

    rule: str = option(
        NONE,
        "mean of a round that stands bad contributions (bsp): trimmed, median, krum or centred (clipping)",
        flag="robust",
        choices=RULES,
    )
    f: int = option(1, "so many workers at most may send what is bad", flag="robust-f", low=1, high=10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSettings:
    """Whichever comes first; 0 means never."""

    epochs: float = option(20.0, "stop after this many passes over the training set, all workers together", low=0)
    samples: int = option(
        0, "stop after this many samples, all workers together", flag="total-samples", low=0, high=2**53
    )
    seconds: float = option(0.0, "stop after this many seconds of training", low=0)
    steps: int = option(0, "stop each worker after this many steps of its own", low=0)
    target_accuracy: float = option(0.0, "stop when the test accuracy reaches this", low=0, high=1)
    until_stopped: bool = option(False, "none of these has to be given: the loop of a script ends the run, or Ctrl-C")

    def samples_of(self, train_samples: int) -> int:
        """That all workers together train, of a data set of so many; 0 for no such rule."""
        rules = (round(self.epochs * train_samples), self.samples)
        return min(filter(None, rules), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    every: float = option(
        0.1,
        "least seconds between two looks at the model; evaluations fill half of the time at most",
        flag="eval-every",
        low=0.01,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Kept in `checkpoints` under the run's folder; one more at the end of a run."""

    every: float = option(30.0, "seconds between two checkpoints; 0: none", flag="checkpoint-every", low=0)
    keep_last: int = option(3, "checkpoints that are kept", low=1)
    keep_best: bool = option(False, "of all checkpoints also the one with the best test accuracy is kept")
    resume: str = option(
        "never",
        "go on: auto (the newest whole one under --out or in --store), a run's folder or redis://.../RUN, or never",
    )
    store: str = option("", "keep them in Redis, too: redis://host:port/db[/RUN][?tls]; RUN is the last part of --out")
    init_from: str = option("", "begin with the weights of this safetensors file")
