"""The sections of a configuration hold every option with its default, its help and its limits.

A section is a frozen dataclass; each field carries its help, its limits and, where the plain field name would not
do, its flag. To add a setting, add a field: the flag of `paceline train`, the TOML key, the help and the range check
follow from it, and every process reads it as `spec.config.<section>.<field>`. A worker that is somebody's own script
reads the default there, unless the field says `variable=True` (then it is in the script's environment).

Example. This field of ClusterSettings

    dead_after: float = option(5.0, "seconds of silence ...", low=1, launch=True)

makes `--dead-after` of `paceline train` and `paceline launch`, `[cluster] dead_after` in TOML, and a ConfigError for
values below 1. Settings that contradict one another are checked in `validation.py`.

The docstrings here are for readers of the code; users see the `help` texts, so these say it in one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paceline.codec import read
from paceline.codec.pipeline.policy import EXACT_BELOW
from paceline.config.value_checks import (
    check_data,
    check_device,
    check_lr_scale,
    check_model,
    check_ranks,
    check_strikes,
    check_torch_distributed,
)
from paceline.core.collective import PEERS
from paceline.core.paramserver.gradient_check import OFF, REJECT, STRIKES_OF, WARN
from paceline.core.paramserver.robust_mean import NONE, RULES
from paceline.core.scheme import Limits, lookup
from paceline.core.sharding import parse_shards
from paceline.engine import specs
from paceline.engine.data.partition_plan import parse_partition
from paceline.live.addresses import is_loopback
from paceline.live.cpu_topology import check_binding


def option(
    default: Any, help: str, *, flag: str = "", launch: bool = False, variable: bool = False, **limits: Any
) -> Any:
    """Returns a field of a section.

    default         of the setting; its type must be that of the annotation
    help            one line for `--help`, without a full stop
    flag            name of the flag, if the field's name would be taken or unclear
    launch          `paceline launch` has the flag, too
    variable        workers that are the user's own scripts find it in an environment variable of the field's name
                    (`paceline.launch.local.environment`)
    limits          as for a scheme's parameter: low, high, choices, or check, a function that raises ValueError
    """
    limited = Limits(help=help, **limits)
    return field(default=default, metadata={"limits": limited, "flag": flag, "launch": launch, "variable": variable})


TORCH_CARRIERS = ("gloo", "nccl", "mpi")
"""Backends of torch.distributed, for means among workers."""
CARRIERS = ("auto", "servers", *PEERS, *TORCH_CARRIERS)
"""Everything that `--allreduce` accepts: a choice by cost, the servers, the workers' own schedules,
torch.distributed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Says what is run, under which seed, and where its files go."""

    scheme: str = option("esync", "synchronisation scheme; see `paceline schemes`", check=lookup)
    # At most 2^53: JSON readers, in which the seed appears, hold numbers as doubles.
    seed: int = option(1, "seed of weights, shares and batches", low=0, high=2**53)
    out: str = option("", "folder for the files of the run (default: runs/<time>-<scheme>)", launch=True)
    # Nobody sets this by hand: it tells the readers of a saved configuration which command its workers ran.
    script: str = option("", "the command of a run of your own script, as `paceline launch` and `race` write it down")
    hook: str = option(
        "", "your own module:function, called with each record of the trace; separate several by commas", launch=True
    )
    verbose: int = option(
        0,
        "1, or -v: log connections in logs/ of --out; 2, or -vv: log each message as well",
        high=2,
        launch=True,
        variable=True,
    )
    trace_mb: float = option(
        512.0, "maximum size of the trace in MiB; later records are merged to fit; 0: no limit", low=0
    )

    record: bool = option(
        False, "record what comes in at each process, for `paceline replay` (docs/replay.md)", launch=True
    )
    record_mb: float = option(
        256.0, "maximum size of the recording of one process in MiB, compressed", low=0.1, launch=True
    )

    @property
    def record_bytes(self) -> int:
        """Returns the maximum size of the recording of one process in bytes."""
        return round(self.record_mb * 2**20)

    @property
    def trace_bytes(self) -> int:
        """Returns the maximum size of the trace in bytes; 0 for no limit."""
        return round(self.trace_mb * 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Says which processes there are, how they are connected, and when one of them counts as failed."""

    workers: int = option(4, "number of workers", low=1, high=100_000)
    # A run is sized for `workers` from the start, since ranks and shares of data are counted by that number. Those
    # beyond `initial_workers` count as absent until they join.
    initial_workers: int = option(
        0, "number of --workers at the start; the others may join during training (`paceline grow`); 0: all", low=0
    )
    servers: int = option(1, "number of server shards; 0 trains by collectives alone", low=0, high=10_000)
    # A shard is cut into slices so that one travels while another is updated. Too small slices cost messages, too large
    # ones leave nothing to overlap.
    slice_mb: float = option(
        4.0,
        "MiB of weights that are sent and updated as one slice; 0: a server's whole shard",
        low=0,
        high=2**20,
        launch=True,
    )
    shards: str = option(
        "measured",
        "part of the model on each server: measured (by its speed and links), equal, or fractions: 0.5,0.3,0.2",
        check=parse_shards,
        launch=True,
    )
    streams: int = option(
        0,
        "number of TCP streams for large vectors; 0: by the round-trip time, 1 on one host",
        low=0,
        high=16,
    )
    # Emulation makes unlike machines of one: a step is stretched until `step_ms` times the worker's slowdown has
    # passed. Neither needs `variable`: their product reaches each worker as `ProcessSpec.step_seconds`.
    slowdown: tuple[float, ...] = option(
        (), "emulate: how many times slower each worker is, e.g. 1,1,2,8", low=1e-3, launch=True
    )
    step_ms: float = option(
        0.0, "emulate: a step lasts at least this many ms times the worker's slowdown", low=0, launch=True
    )
    # It reaches each worker as `ProcessSpec.batch_limit`.
    batch_limits: tuple[int, ...] = option(
        (),
        "largest batch of each worker, as its memory bounds it, e.g. 96,32; one number: of every worker; 0: any",
        low=0,
        high=2**31,
        launch=True,
    )
    device: str = option(
        "auto", "auto, cpu, cuda:N, xpu:N, mps, or one for each worker: cuda:0,cpu,cpu", check=check_device, launch=True
    )
    ranks: str = option(
        "1",
        "processes of each worker of a script, which train one model together: a number, or one for each worker: 4,4,1",
        check=check_ranks,
        launch=True,
    )
    torch_distributed: str = option(
        "none",
        "RANK, MASTER_ADDR, ... for a script's own torch.distributed: none, auto (this machine), or HOST:PORT of "
        "worker 0",
        check=check_torch_distributed,
        launch=True,
    )
    overlap: str = option(
        "auto",
        "send gradients while backward still computes; auto: where the first steps, made both ways, are faster with it",
        choices=("auto", "on", "off"),
    )
    threads: int = option(
        1, "CPU threads of each worker; of a script, unless OMP_NUM_THREADS is set", low=1, launch=True
    )
    bind_cores: str = option(
        "none",
        "CPUs of each worker: auto divides cores and NUMA nodes of each host; or a list: 0-7, or one for each: 0-3/4-7",
        check=check_binding,
        launch=True,
    )
    transport: str = option(
        "auto",
        "how vectors travel between processes of one host: shm shares memory, tcp does not, auto shares it if possible",
        choices=("auto", "shm", "tcp"),
        launch=True,
        variable=True,
    )
    bind: str = option("127.0.0.1", "address on which processes listen; beyond loopback always with TLS", launch=True)
    tls: str = option(
        "auto",
        "TLS 1.3 with the run's own certificates; auto: on if --bind leads beyond this machine",
        choices=("auto", "on", "off"),
        launch=True,
    )
    allreduce: str = option(
        "auto", "how means among workers are computed (docs/carriers.md)", choices=CARRIERS, launch=True, variable=True
    )
    # Limits on silence, which find different failures: `timeout` a wait in which nothing is wrong with the other
    # side (600 s covers compilation and downloads), `dead_after` a process or host that is gone or frozen, and
    # `stuck_after` a process that answers but does not train, such as a hanging CUDA kernel.
    timeout: float = option(600.0, "maximum seconds of any single wait", low=1, launch=True, variable=True)
    dead_after: float = option(5.0, "seconds of silence after which a process is declared failed", low=1, launch=True)
    stuck_after: float = option(
        300.0,
        "maximum seconds of a mini-batch, or 20 usual steps if longer, before a worker is declared failed; 0: no limit",
        low=0,
        launch=True,
    )
    connect_timeout: float = option(120.0, "maximum seconds until a started process connects", low=1, launch=True)
    restarts: int = option(3, "maximum number of restarts of each worker, and of the evaluator", low=0, launch=True)
    min_workers: int = option(1, "the run ends when fewer workers are left", low=1, launch=True)
    # With `replica` a server's reply waits until the next server has a copy: one more message per update, for which no
    # acknowledged update is lost when one server fails.
    ack: str = option(
        "memory",
        "where an acknowledged update is kept: memory: in one server, so all return to a snapshot if it fails; "
        "replica: also in the next server",
        choices=("memory", "replica"),
    )
    # The work that a rollback may lose, against the cost of sending the whole model to the coordinator's host.
    snapshot_every: float = option(
        30.0,
        "seconds between two snapshots, from which a failed server is replaced; 0: its failure ends the run",
        low=0,
    )

    @property
    def beginning(self) -> int:
        """Returns how many workers are present at the beginning: those of the lowest ranks."""
        return self.initial_workers or self.workers

    @property
    def secured(self) -> bool:
        """Returns True if TCP connections are under TLS."""
        return self.tls == "on" or (self.tls == "auto" and not is_loopback(self.bind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """Names the codecs of what workers and servers send (docs/codecs.md)."""

    up: str = option("none", "codec of what workers send; see `paceline codecs`", flag="codec", check=read)
    down: str = option("none", "codec of what servers send", flag="codec-down", check=read)
    # Small tensors, such as biases, matter more per number than large ones, and encoding them saves next to nothing.
    exact_below: int = option(
        EXACT_BELOW, "vectors and tensors of fewer numbers are not encoded", flag="codec-exact-below", low=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Names the data set, and says which worker gets which samples."""

    name: str = option(
        "digits",
        f"data set: {', '.join(specs.DATASETS)}; or your own module:function or file.py:function",
        flag="data",
        check=check_data,
    )
    directory: str = option(
        "",
        "folder of the data set's files, or its address (s3://..., webhdfs://...); mnist and fashion-mnist are "
        "downloaded without",
        flag="data-dir",
    )
    file: str = option(
        "", "text file of --data text (default: the sources of Python's standard library)", flag="data-file"
    )
    context: int = option(64, "tokens of a sample of --data text", flag="context", low=2, high=4096)
    samples: int = option(4096, "size of synthetic data", low=16)
    resize: int = option(
        0, "side in pixels to which the pictures of named data are brought; 0: as they are", low=0, high=1024
    )
    mean_file: str = option(
        "", "mean picture, .binaryproto or .npy; it is subtracted from pixels of 0 to 255 and nothing else is done"
    )
    augment: str = option(
        "none",
        "how pictures to train are varied: cifar: padded by 4, cropped, mirrored; alexnet: crops of 7/8, mirrored; "
        "imagenet: crops of any size, mirrored",
        choices=specs.AUGMENTATIONS,
    )
    partition: str = option(
        "uniform",
        "which worker gets which samples: uniform, speed, class, dirichlet:ALPHA, fractions:A,B,..., file:PATH, "
        "queue[:N]",
        check=parse_partition,
    )
    batch_size: int = option(32, "samples per step of a worker", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Names the network and the precision of its passes."""

    name: str = option(
        "mlp",
        f"network: {', '.join(specs.MODELS)} (docs/networks.md); or your own module:function or file.py:function",
        flag="model",
        check=check_model,
    )
    width: float = option(1.0, "multiplies the network's channels or hidden units", low=1e-3, high=64)
    depth: int = option(0, "blocks of gpt; 0: two", flag="depth", low=0, high=128)
    dropout: float = option(0.0, "fraction of the last layer's inputs that is dropped in training", low=0, high=0.99)
    # Batch-norm statistics are no parameters, so no scheme exchanges them. They are averaged for evaluation, or each
    # worker keeps its own.
    buffers: str = option("average", "batch-norm statistics of the workers' models", choices=("average", "local"))
    precision: str = option(
        "fp32",
        "type of the forward and backward pass; weights and exchanges stay fp32; fp16 needs GPUs",
        choices=specs.PRECISIONS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Names the optimizer and its numbers, which mean what they mean in torch.optim."""

    name: str = option("sgd", "optimizer", flag="optimizer", choices=specs.OPTIMIZERS)
    lr: float = option(0.15, "learning rate on the mean loss", low=0)
    lr_scale: str = option(
        "auto",
        "factor on the rate of updates; auto: by how much of a round of all workers an update is; none: 1; or a number",
        check=check_lr_scale,
        launch=True,
        variable=True,
    )
    momentum: float = option(0.0, "momentum of SGD and LARS; the other optimizers have beta1", low=0, high=1)
    nesterov: bool = option(False, "SGD with Nesterov's momentum")
    weight_decay: float = option(0.0, "weight decay", low=0)
    beta1: float = option(0.9, "Adam's first decay", low=0, high=1)
    beta2: float = option(0.999, "Adam's second decay", low=0, high=1)
    eps: float = option(1e-8, "Adam's epsilon", low=0)
    trust: float = option(0.001, "LARS's trust coefficient", low=0)
    muon_momentum: float = option(0.95, "Muon's momentum; beta1, beta2 and eps are its AdamW's", low=0, high=1)
    clip_norm: float = option(0.0, "maximum norm of a gradient; a longer one is clipped; 0: never", low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """Names the learning-rate schedule. All lengths are in epochs, passes over the training set by all workers
    together.

    Epochs, not steps: under asynchronous schemes the workers make different numbers of steps at any time.
    """

    name: str = option("constant", "learning-rate schedule", flag="schedule", choices=specs.SCHEDULES)
    warmup: float = option(0.0, "epochs of linear warm-up", low=0)
    every: float = option(30.0, "step: epochs between two reductions", flag="schedule-every", low=1e-6)
    at: tuple[float, ...] = option(
        (), "step: epochs of the reductions, such as 30,60,80, instead of every", flag="schedule-at", low=0
    )
    factor: float = option(0.1, "step: factor of each reduction", flag="schedule-factor", low=0, high=1)
    power: float = option(1.0, "poly: the power of the part that is left", flag="schedule-power", low=1e-6)
    floor: float = option(0.0, "cosine: the last factor", flag="schedule-floor", low=0, high=1)

    def recipe(self, train_samples: int, total: int) -> specs.ScheduleRecipe:
        """Returns the schedule in samples, for a training set of `train_samples`; the run ends after `total`."""
        return specs.ScheduleRecipe(
            name=self.name,
            warmup=round(self.warmup * train_samples),
            every=max(1, round(self.every * train_samples)),
            factor=self.factor,
            total=total,
            floor=self.floor,
            at=tuple(round(epochs * train_samples) for epochs in self.at),
            power=self.power,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Says which gradients servers reject (docs/numbers.md)."""

    mode: str = option(
        WARN,
        "which gradients servers reject: warn: those with NaN or infinity; reject: outliers too; off: none",
        flag="gate",
        choices=(OFF, WARN, REJECT),
    )
    factor: float = option(
        3.0,
        "an outlier has a norm above this many times the running median of all workers, and beyond their spread",
        flag="gate-factor",
        low=1.01,
    )
    strikes: int = option(
        10,
        "expel a worker when this many of its last 100 gradients were rejected, unless others' were too; 0: never",
        flag="gate-strikes",
        low=0,
        high=STRIKES_OF,
        check=check_strikes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Robust:
    """Chooses a mean that withstands Byzantine workers (docs/numbers.md)."""

    rule: str = option(
        NONE,
        "robust mean of a round (bsp): trimmed, median, krum or centred (clipping)",
        flag="robust",
        choices=RULES,
    )
    f: int = option(1, "maximum number of Byzantine workers (f)", flag="robust-f", low=1, high=10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSettings:
    """Says when the run ends: by whichever rule holds first; 0 means never.

    `epochs` and `samples` count samples of all workers, which the coordinator adds up; `steps` counts each worker's
    own.
    """

    epochs: float = option(
        20.0, "stop after this many passes over the training set by all workers together", low=0, launch=True
    )
    samples: int = option(
        0, "stop after this many samples of all workers together", flag="total-samples", low=0, high=2**53, launch=True
    )
    seconds: float = option(0.0, "stop after this many seconds of training", low=0, launch=True)
    steps: int = option(0, "stop each worker after this many steps of its own", low=0, variable=True, launch=True)
    target_accuracy: float = option(0.0, "stop when the test accuracy reaches this", low=0, high=1, launch=True)
    target_loss: float = option(0.0, "stop when the test loss is this or lower", low=0, launch=True)
    until_stopped: bool = option(False, "none of these has to be given: the loop of a script ends the run, or Ctrl-C")

    def samples_of(self, train_samples: int) -> int:
        """Returns how many samples all workers together train, of a data set of `train_samples`; 0 where neither rule
        is given."""
        rules = (round(self.epochs * train_samples), self.samples)
        return min(filter(None, rules), default=0)

    def counted(self, train_samples: int) -> str:
        """Returns the name of the rule that bounds the samples of the run: `samples` or `epochs`.

        train_samples: of the data set; 0 where only a script knows it
        """
        sooner = 0 < round(self.epochs * train_samples) < self.samples
        return "samples" if self.samples and not sooner else "epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Says how often the evaluator evaluates the model.

    Evaluations take at most half of the evaluator's time, so a slow test set makes them rarer.
    """

    every: float = option(
        0.1,
        "minimum seconds between two evaluations; evaluations take at most half of the time",
        flag="eval-every",
        low=0.01,
        launch=True,
    )
    # Other systems evaluate every so many rounds or merges; the figure is told four times a second.
    every_exchanges: int = option(
        0,
        "exchanges of all workers together between two evaluations, besides --eval-every; 0: by time alone",
        flag="eval-every-exchanges",
        low=0,
        high=2**53,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Says how often checkpoints are written, how many are kept, and where a run begins.

    They are kept in `checkpoints` under the run's folder; the last one is written at the end of the run.
    """

    every: float = option(30.0, "seconds between two checkpoints; 0: none", flag="checkpoint-every", low=0, launch=True)
    keep_last: int = option(3, "number of checkpoints to keep", low=1, launch=True)
    keep_best: bool = option(False, "also keep the checkpoint with the best test accuracy", launch=True)
    resume: str = option(
        "never",
        "resume: auto (the newest complete checkpoint under --out or in --store), a run's folder or redis://.../RUN, "
        "or never",
        launch=True,
    )
    store: str = option(
        "",
        "save checkpoints in Redis, too: redis://host:port/db[/RUN][?tls]; RUN is the last part of --out",
        launch=True,
    )
    init_from: str = option("", "start with the weights of this safetensors file")
