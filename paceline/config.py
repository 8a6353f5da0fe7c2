"""One typed configuration: defaults, then a TOML file, then flags; unknown keys are errors; saved with every run.

A section is a frozen dataclass; each field carries its help, its limits and, where the plain field name would not do,
its flag. Parameters of schemes live in sections named after the scheme: `[ssp] staleness = 2` or `--ssp.staleness 2`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.codec import read
from paceline.codec.policy import EXACT_BELOW, Codecs
from paceline.core.collective import PEERS
from paceline.core.errors import ConfigError
from paceline.core.gate import OFF, REJECT, WARN, GatePolicy
from paceline.core.registry import nearest
from paceline.core.scheme import Limits, Scheme, limits_of, lookup, make, names, types_of
from paceline.core.sharding import parse_shards
from paceline.engine import recipes
from paceline.engine.data.partition import read_sharding
from paceline.engine.data.shares import parse_shares
from paceline.live.segments import segments_for
from paceline.live.tcp import check_bind, is_loopback


def option(default: Any, help: str, *, flag: str = "", **limits: Any) -> Any:
    """A field of a section: default, help, flag (the field's name by default), and limits as for a scheme."""
    return field(default=default, metadata={"limits": Limits(help=help, **limits), "flag": flag})


def check_device(text: str) -> None:
    for device in text.split(","):
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise ValueError(f"{device!r} is no device; there are auto, cpu, cuda and cuda:N")


TORCH_CARRIERS = ("gloo", "nccl", "mpi")
CARRIERS = ("auto", "servers", *PEERS, *TORCH_CARRIERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    scheme: str = option("esync", "synchronisation scheme; see `paceline schemes`", check=lookup)
    seed: int = option(1, "seeds weights, shares and batches", low=0, high=2**53)
    out: str = option("", "folder for what the run leaves (default: runs/<time>-<scheme>)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    workers: int = option(4, "number of workers", low=1, high=100_000)
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
    overlap: bool = option(True, "communicate while computing: gradients leave as backward makes them")
    threads: int = option(1, "CPU threads of each worker", low=1)
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
    mean: str = option("auto", "who averages among equals; see docs/carriers.md", choices=CARRIERS)
    timeout: float = option(600.0, "seconds any single wait may take", low=1)
    dead_after: float = option(5.0, "seconds of silence after which a worker is given up", low=1)

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
    name: str = option("digits", "data set", flag="data", choices=recipes.DATASETS)
    directory: str = option("", "folder with the files of mnist or fashion-mnist (default: download)", flag="data-dir")
    samples: int = option(4096, "size of synthetic data", low=16)
    shares: str = option(
        "uniform",
        "who gets which samples: uniform, speed, class, dirichlet:ALPHA, fractions:A,B,..., file:PATH",
        check=parse_shares,
    )
    batch_size: int = option(32, "samples a worker's step", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str = option("mlp", "network", flag="model", choices=recipes.MODELS)
    width: float = option(1.0, "multiplies the network's channels or hidden units", low=1e-3, high=64)
    buffers: str = option("average", "batch-norm statistics of the workers' models", choices=("average", "local"))
    precision: str = option(
        "fp32",
        "of forward and backward; weights and what is exchanged stay fp32; fp16 needs GPUs",
        choices=recipes.PRECISIONS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    name: str = option("sgd", "optimizer", flag="optimizer", choices=recipes.OPTIMIZERS)
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
class Schedule:
    """Lengths in epochs: passes over the training set by all workers together."""

    name: str = option("constant", "learning-rate schedule", flag="schedule", choices=recipes.SCHEDULES)
    warmup: float = option(0.0, "epochs of linear warm-up", low=0)
    every: float = option(30.0, "step: epochs between two reductions", flag="schedule-every", low=1e-6)
    factor: float = option(0.1, "step: what each reduction multiplies by", flag="schedule-factor", low=0, high=1)
    floor: float = option(0.0, "cosine: the last factor", flag="schedule-floor", low=0, high=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Whichever comes first; 0 means never."""

    epochs: float = option(20.0, "stop after this many passes over the training set, all workers together", low=0)
    seconds: float = option(0.0, "stop after this many seconds of training", low=0)
    steps: int = option(0, "stop each worker after this many steps of its own", low=0)
    target_accuracy: float = option(0.0, "stop when the test accuracy reaches this", low=0, high=1)


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
    resume: str = option("never", "go on: auto (the newest whole one under --out), a run's folder, or never")
    init_from: str = option("", "begin with the weights of this safetensors file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that decides what a run does. `parameters`: section of each scheme, by scheme and parameter."""

    run: Run = field(default_factory=Run)
    cluster: Cluster = field(default_factory=Cluster)
    compression: Compression = field(default_factory=Compression)
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    gate: Gate = field(default_factory=Gate)
    stop: Stop = field(default_factory=Stop)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)

    def scheme(self) -> Scheme:
        own = make(self.run.scheme, self.parameters.get(self.run.scheme, {}))
        return own.completed(self.parameters, 0)

    def codecs(self) -> Codecs:
        return Codecs(**dataclasses.asdict(self.compression))

    def gate_policy(self) -> GatePolicy:
        return GatePolicy(**dataclasses.asdict(self.gate))

    def slowdown_of(self, rank: int) -> float:
        return self.cluster.slowdown[rank] if self.cluster.slowdown else 1.0

    def device_of(self, rank: int) -> str:
        devices = self.cluster.device.split(",")
        return devices[rank] if len(devices) > 1 else devices[0]

    def check(self) -> Config:
        """Raises ConfigError for settings that contradict one another; returns itself."""
        workers, stop = self.cluster.workers, self.stop
        for flag, entries in (("slowdown", self.cluster.slowdown), ("device", self.cluster.device.split(","))):
            if len(entries) > 1 and len(entries) != workers:
                raise ConfigError(f"--{flag} names {len(entries)} workers, --workers says {workers}")
        if self.cluster.slowdown and len(self.cluster.slowdown) != workers:
            raise ConfigError(f"--slowdown names {len(self.cluster.slowdown)} workers, --workers says {workers}")
        if self.cluster.slowdown and not self.cluster.step_ms:
            raise ConfigError("--slowdown multiplies --step-ms: give that too, e.g. --step-ms 20")
        if not (stop.epochs or stop.seconds or stop.steps or stop.target_accuracy):
            raise ConfigError("nothing would end the run: give --epochs, --seconds, --steps or --target-accuracy")
        self._check_optimizer()
        self._check_data()
        self._check_mean()
        self._check_precision()
        self._check_gate()
        fractions = parse_shards(self.cluster.shards)
        if fractions and len(fractions) != self.cluster.servers:
            raise ConfigError(f"--shards names {len(fractions)} servers, --servers says {self.cluster.servers}")
        segments_for(self.cluster.transport)
        check_bind(self.cluster.bind, self.cluster.secured)
        self.scheme().check(workers, self.cluster.servers)
        momentum = self.optimizer.momentum if self.optimizer.name == "sgd" else 0.0
        self.codecs().check(self.scheme(), self.cluster.servers, momentum, self.cluster.mean)
        return self

    def _check_optimizer(self) -> None:
        optimizer, schedule, epochs = self.optimizer, self.schedule, self.stop.epochs
        if optimizer.name != "sgd" and optimizer.nesterov:
            instead = "--momentum" if optimizer.name in recipes.MOMENTUM else "--beta1"
            raise ConfigError(f"--nesterov is SGD's; {optimizer.name} has {instead} instead")
        if optimizer.nesterov and not optimizer.momentum:
            raise ConfigError("--nesterov needs --momentum above 0")
        if optimizer.clip_norm and self.cluster.servers > 1 and self.scheme().computes:
            raise ConfigError(
                f"--clip-norm needs the norm of the whole gradient, and each of {self.cluster.servers} servers sees a "
                "part of it: give --servers 1"
            )
        if max(optimizer.beta1, optimizer.beta2) >= 1:
            raise ConfigError("--beta1 and --beta2 must be below 1")
        if schedule.name == "step" and not schedule.factor:
            raise ConfigError("--schedule-factor must be above 0")
        if schedule.name == "cosine" and not epochs:
            raise ConfigError("--schedule cosine needs --epochs, to know where it ends")
        if schedule.name == "cosine" and schedule.warmup >= epochs:
            raise ConfigError(f"--schedule cosine needs more --epochs than the {schedule.warmup:g} of its --warmup")

    def _check_data(self) -> None:
        workers = self.cluster.workers
        if self.data.directory and not Path(self.data.directory).is_dir():
            raise ConfigError(f"--data-dir {_shown(self.data.directory)}: no such folder")
        shares = parse_shares(self.data.shares)
        if shares.weights and len(shares.weights) != workers:
            raise ConfigError(f"--shares names {len(shares.weights)} fractions, --workers says {workers}")
        if shares.path:
            read_sharding(Path(shares.path), workers)

    def _check_precision(self) -> None:
        if self.model.precision == "fp16" and "cpu" in self.cluster.device:
            raise ConfigError("--precision fp16 needs a GPU for every worker: give --precision bf16, or other --device")

    def _check_gate(self) -> None:
        scheme, servers = self.scheme(), self.cluster.servers
        if self.gate.mode == REJECT and scheme.server(servers) is None:
            raise ConfigError(
                f"--gate reject: nothing is pushed to servers under {scheme.name} with --servers {servers}; "
                "take --gate warn, or a scheme whose workers push, such as asp"
            )

    def _check_mean(self) -> None:
        mean, servers = self.cluster.mean, self.cluster.servers
        if mean == "servers" and not servers:
            raise ConfigError("--mean servers needs --servers 1 or more")
        if mean == "nccl" and "cpu" in self.cluster.device:
            raise ConfigError("--mean nccl needs a GPU of its own for every worker: give --device cuda:0,cuda:1,...")
        if mean in TORCH_CARRIERS and not _torch_has(mean):
            raise ConfigError(f"--mean {mean}: this PyTorch was built without it; take --mean ring, or leave it out")
        if mean not in ("auto", "servers") and servers and not self.scheme().uses_mean(servers):
            raise ConfigError(
                f"--mean {mean}: with servers, the workers of {self.run.scheme} average nothing among themselves; "
                "give --servers 0 where it can do without, or leave --mean out"
            )


def _torch_has(backend: str) -> bool:
    from torch import distributed

    return bool(getattr(distributed, f"is_{backend}_available")())


SECTIONS: dict[str, Any] = {
    name: hint for name, hint in get_type_hints(Config).items() if dataclasses.is_dataclass(hint)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of the configuration: where it is kept, its flag, type, default and limits."""

    section: str
    key: str
    flag: str
    type: Any
    default: Any
    limits: Limits

    def parse(self, text: str) -> Any:
        """The value written as `text` on a command line. Raises ConfigError."""
        try:
            return self.check(_parse(text, self.type))
        except ValueError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"--{self.flag} {_shown(text)}: must be {_described(self.type)}") from None

    def check(self, value: Any) -> Any:
        """`value` in the type of this setting. Raises ConfigError when it does not fit."""
        try:
            value = _convert(value, self.type)
        except ValueError:
            raise ConfigError(f"--{self.flag} {_shown(value)}: must be {_described(self.type)}") from None
        if self.limits.file and value.startswith("file:"):
            value = self._contents(Path(value.removeprefix("file:")))
        for single in value if isinstance(value, tuple) else (value,):
            refused = self.limits.refuse(single)
            if refused:
                raise ConfigError(f"--{self.flag} {_shown(single)}: {refused}{self._hint(single)}")
        return value

    def _contents(self, path: Path) -> str:
        """Read here, where the run is configured: its other machines need no copy, and the run keeps one."""
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is no text"
            raise ConfigError(f"--{self.flag} file:{_shown(str(path))}: {why}") from None

    def _hint(self, value: Any) -> str:
        return nearest(value, self.limits.choices) if self.limits.choices and isinstance(value, str) else ""


def settings() -> Iterator[Setting]:
    """Every setting there is, those of all schemes included."""
    for section, cls in SECTIONS.items():
        hints = get_type_hints(cls)
        for f in dataclasses.fields(cls):
            flag = f.metadata["flag"] or f.name.replace("_", "-")
            yield Setting(
                section=section,
                key=f.name,
                flag=flag,
                type=hints[f.name],
                default=f.default,
                limits=f.metadata["limits"],
            )
    for name in names():
        yield from scheme_settings(name)


def scheme_settings(name: str) -> Iterator[Setting]:
    cls = lookup(name)
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    hints = types_of(cls)
    for key, limits in limits_of(cls).items():
        flag = f"{name}.{key.replace('_', '-')}"
        yield Setting(section=name, key=key, flag=flag, type=hints[key], default=defaults[key], limits=limits)


def build(values: Mapping[str, Mapping[str, Any]]) -> Config:
    """A checked configuration from values by section and key, such as a parsed TOML file.

    Raises ConfigError for unknown sections and keys, naming the nearest one, and for values that do not fit.
    """
    known: dict[str, dict[str, Setting]] = {}
    for setting in settings():
        known.setdefault(setting.section, {})[setting.key] = setting
    known.update({name: {} for name in names() if name not in known})
    checked: dict[str, dict[str, Any]] = {}
    for section, entries in values.items():
        if section not in known:
            raise ConfigError(f"unknown section [{_shown(section)}]{nearest(section, known)}")
        if not isinstance(entries, Mapping):
            raise ConfigError(f"{section} = {entries!r} stands outside a section{nearest(section, known)}")
        for key, value in entries.items():
            if key not in known[section]:
                raise ConfigError(f"unknown key {key!r} in [{section}]{nearest(key, known[section])}")
            checked.setdefault(section, {})[key] = known[section][key].check(value)
    sections = {name: cls(**checked.get(name, {})) for name, cls in SECTIONS.items()}
    parameters = {name: checked[name] for name in names() if name in checked}
    return Config(**sections, parameters=parameters).check()


def load(path: str | Path) -> dict[str, dict[str, Any]]:
    """The values of a TOML file. Raises ConfigError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    """Values by section and key, every default written out; `build` gives the same configuration back."""
    values: dict[str, dict[str, Any]] = {name: dataclasses.asdict(getattr(config, name)) for name in SECTIONS}
    for section in values.values():
        section.update({key: list(value) for key, value in section.items() if isinstance(value, tuple)})
    used = config.scheme()
    values[config.run.scheme] = used.parameters()
    values.update({name: dict(entries) for name, entries in config.parameters.items() if name != config.run.scheme})
    return {name: entries for name, entries in values.items() if entries}


def save(config: Config, path: Path) -> None:
    import tomli_w

    values = to_dict(config)
    values["run"].pop("out")  # read again, it is another run with a folder of its own
    values["checkpoint"].pop("resume")
    path.write_text(tomli_w.dumps(values), encoding="utf-8")


_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _parse(text: str, wanted: Any) -> Any:
    if wanted is bool:
        if text.lower() not in _WORDS:
            raise ValueError(text)
        return _WORDS[text.lower()]
    if wanted is int or wanted is float:
        return wanted(text)
    if wanted == tuple[float, ...]:
        return tuple(float(part) for part in text.split(",")) if text.strip() else ()
    return text


def _convert(value: Any, wanted: Any) -> Any:
    """TOML's types into ours. Raises ValueError."""
    if wanted == tuple[float, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(value)
        return tuple(_convert(item, float) for item in value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError(value)
    if (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, str) and "\0" in value):
        raise ValueError(value)
    return value


def _shown(value: Any) -> str:
    """`value` for a message of one line."""
    text = value if isinstance(value, str) else repr(value)
    return text if text.isprintable() else repr(text)


def _described(wanted: Any) -> str:
    known = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return known.get(wanted, "numbers separated by commas")
