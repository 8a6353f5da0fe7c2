"""What a command line of SpeeDO means: words of `paceline train`, and which process of a run it is.

    --sync                bsp          in each of them a worker sends what its own solver changed, after --train
    (nothing)             asp          mini-batches: `payload` delta. --gradientOnly sends the gradient instead, and
    --maxAdvance n        partial      --movingRate a the weights, which are averaged elastically
    --weedout n           weedout
    --hybrid ...          hybrid       phases of these

SpeeDO counts merges. An asynchronous merge is one worker's exchange, a synchronous one an exchange of all. So
`--maxIter` becomes a number of samples, and `--test` a number of exchanges of all workers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.compat.speedo.text_format import Message, one, read_text
from paceline.core.errors import ConfigError

STRATEGIES = {
    "sync": "bsp",
    "async": "asp",
    "partial": "partial",
    "weedout": "weedout",
    "easgd": "asp",
    "hybrid": "hybrid",
}
"""Names that `--solver` takes, besides the path of a file, and the schemes."""
EASGD_RATE, ADVANCE, BATCH = 0.5, 4, 100
PORT = 56126
"""The port of SpeeDO's Docker image."""
NEVER_S = 1e6
WITHOUT_EFFECT = {
    "redis": "--redis: weights do not travel by Redis here (docs/migration-speedo.md); --store keeps checkpoints there",
    "debug": "--debug: losses are in the summary and on --watch",
    "keyName": "--keyName: there is no store with keys",
    "suffix": "--suffix: there is no store with keys",
    "baseDir": "--baseDir: paths are from the working directory",
    "timeout": "--timeout: see --timeout of paceline launch",
    "sleepAfterFinish": "--sleepAfterFinish: nothing waits",
    "start": "--start: workers share the samples",
    "CPUDBActor": "--CPUDBActor: servers are on the CPU",
}
REFUSED = {
    "snapshot": "--snapshot: weights of Caffe are not read; give a safetensors file with --init-from",
    "hdfs": "--hdfs: weights do not travel by files; data may be remote, --data-dir webhdfs://...",
    "skip": "--skip: layers are not skipped at random; see `paceline codecs` for sending less",
    "doublePrecision": "--doublePrecision: weights are float32",
    "startIter": "--startIter: give --out and --resume auto, which go on with everything",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedoFlags:
    """Holds the flags of one command line; None where a flag was not given."""

    solver: str
    worker: int = 1
    max_iter: int | None = None
    test: int | None = None
    train: int = 1
    sync: bool = False
    max_advance: int | None = None
    weedout: int | None = None
    moving_rate: float | None = None
    hybrid: tuple[str, ...] = ()
    gradient_only: bool = False
    factor: float | None = None
    lr: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    batch: int | None = None
    device: int | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Solver:
    """Holds what a solver file says; `net` is None where a strategy's name stands in its place."""

    net: Path | None
    values: Message


def started(words: Sequence[str]) -> list[str]:
    """Returns the flags of a command line: without `java -cp ... Class`, and with those of the Docker image's words.

    `master IP N` listens for N workers, and `worker MASTER IP` is one of them. Raises ConfigError.
    """
    given = list(words)
    if given[:1] == ["java"]:
        at = next((n for n, word in enumerate(given) if word.endswith(("AkkaUtil", "SpeeDOApp"))), None)
        if at is None:
            raise ConfigError("java ...: name SpeeDO's class, AkkaUtil, before its flags")
        return given[at + 1 :]
    if given[:1] == ["master"] and len(given) >= 3:
        return ["--host", given[1], "--worker", given[2], "--port", str(PORT), *given[3:]]
    if given[:1] == ["worker"] and len(given) >= 3:
        return ["--master", given[1], "--host", given[2], *given[3:]]
    return given


def read_solver(text: str) -> Solver:
    """Returns the solver that `--solver` names. Raises ConfigError."""
    path = Path(text)
    if text in STRATEGIES and not path.exists():
        return Solver(None, {})
    values = read_text(path)
    net = one(values, "net", one(values, "train_net", ""))
    if not net:
        raise ConfigError(f"{path}: names no net")
    here = Path(net)
    return Solver(here if here.exists() or here.is_absolute() else path.parent / here, values)


def leader_of(master: str) -> str:
    """Returns HOST:PORT of an Akka address, or of HOST:PORT, or of a host alone. Raises ConfigError."""
    match = re.fullmatch(r"(?:akka(?:\.\w+)?://\w+@)?([\w.-]+)(?::(\d+))?(?:/.*)?", master)
    if not match:
        raise ConfigError(f"--master {master}: must be akka.tcp://SpeeDO@HOST:PORT/user/host, or HOST:PORT")
    return f"{match[1]}:{match[2] or PORT}"


def environment_of(flags: SpeedoFlags, host: str, port: int, master: str) -> dict[str, str]:
    """Returns the variables that make this process one of several; {} where it starts all of them itself."""
    if master:
        if flags.worker != 1:
            raise ConfigError(f"--worker {flags.worker} with --master: start the command once for each worker")
        return {"PACELINE_ROLE": "worker", "PACELINE_LEADER": leader_of(master)}
    if not port:
        return {}
    where = {"PACELINE_LEADER": f"{host or '127.0.0.1'}:{port}", "PACELINE_WORKERS": str(flags.worker)}
    return {"PACELINE_ROLE": "scheduler", **where}


def translated(flags: SpeedoFlags, solver: Solver, own_code: str) -> tuple[list[str], list[str]]:
    """Returns the words after `paceline train`, and lines for the user.

    own_code: the file with the functions `net` and `data` of the net file. Raises ConfigError.
    """
    for name, why in REFUSED.items():
        if flags.others.get(name):
            raise ConfigError(why)
    lines = [why for name, why in WITHOUT_EFFECT.items() if flags.others.get(name)]
    batch, words = _task(flags, solver, own_code)
    scheme, together = _scheme(flags)
    merge = batch * flags.train * (flags.worker if together else 1)
    last = flags.max_iter or int(one(solver.values, "max_iter", 0))
    if not last:
        raise ConfigError("--maxIter: give the number of merges after which the run ends")
    every = last if flags.test is None else flags.test
    words += ["--lr-scale", "none"]  # its rates are those of its merges
    words += ["--workers", str(flags.worker), *scheme, "--epochs", "0", "--total-samples", str(last * merge)]
    if every:
        exchanges = every * (flags.worker if together else 1)
        words += ["--eval-every", "0.01", "--eval-every-exchanges", str(exchanges)]
    else:
        words += ["--eval-every", f"{NEVER_S:g}"]
    if flags.others.get("drop") is not None:
        lines.append("--drop: SpeeDO reads only --weedout, so this has no effect there either")
    lines.append(f"a merge is {merge} samples: --maxIter {last} is --total-samples {last * merge}")
    return words, lines


def _task(flags: SpeedoFlags, solver: Solver, own_code: str) -> tuple[int, list[str]]:
    """Returns the batch size, and the words for network, data and optimizer."""
    values = solver.values
    _check_solver(values)
    rate, momentum, decay = (
        own if own is not None else float(one(values, name, default))
        for own, name, default in (
            (flags.lr, "base_lr", 0.01),
            (flags.momentum, "momentum", 0.0),
            (flags.weight_decay, "weight_decay", 0.0),
        )
    )
    words = ["--lr", f"{rate:g}", "--momentum", f"{momentum:g}", "--weight-decay", f"{decay:g}"]
    from paceline.compat.speedo.caffe_net import TRAIN, source_of  # imports torch, which --help does not need

    source = source_of(solver.net, TRAIN) if solver.net else None
    batch = flags.batch or (source.batch_size if source else BATCH)
    words += ["--batch-size", str(batch)]
    if solver.net:
        words += ["--model", f"{own_code}:net", *(["--data", f"{own_code}:data"] if source else [])]
    if "random_seed" in values:
        words += ["--seed", str(one(values, "random_seed", 1))]
    on_cpu = one(values, "solver_mode", "GPU") in ("CPU", 0)
    device = flags.device if flags.device is not None else (-1 if on_cpu else None)
    words += [] if device is None else ["--device", "cpu" if device < 0 else f"cuda:{device}"]
    return batch, words


def _check_solver(values: Message) -> None:
    policy = one(values, "lr_policy", "fixed")
    if policy != "fixed":
        raise ConfigError(
            f"lr_policy {policy}: change it to fixed, and give --schedule step --schedule-every EPOCHS "
            f"--schedule-factor {one(values, 'gamma', 0.1)}, or --schedule cosine"
        )
    kind = one(values, "type", one(values, "solver_type", "SGD"))
    if kind != "SGD":
        raise ConfigError(f"solver type {kind}: only SGD is read; give --optimizer, such as --optimizer adam")
    if one(values, "iter_size", 1) != 1:
        raise ConfigError("iter_size: give the whole batch with --batch")


def _scheme(flags: SpeedoFlags) -> tuple[list[str], bool]:
    """Returns the words of the scheme, and whether all workers make one merge together.

    SpeeDO's own order: hybrid, weed-out, partially synchronous, synchronous, asynchronous.
    """
    asked = flags.solver if flags.solver in STRATEGIES else ""
    if flags.hybrid or asked == "hybrid":
        return ["--scheme", "hybrid", "--hybrid.phases", _phases(flags)], False
    name, parameters = _strategy(flags, asked)
    words = ["--scheme", name]
    for parameter, value in parameters.items():
        words += [f"--{name}.{parameter.replace('_', '-')}", str(value)]
    return words, name == "bsp"


def _strategy(flags: SpeedoFlags, asked: str) -> tuple[str, dict[str, Any]]:
    """Returns one strategy as a scheme with its parameters."""
    name, own = "asp", dict[str, Any]()
    if flags.weedout is not None or asked == "weedout":
        name, own = "weedout", {"window": flags.weedout or 0}
    elif flags.max_advance is not None or asked == "partial":
        name, own = "partial", {"max_advance": flags.max_advance or ADVANCE}
    elif flags.sync or asked == "sync":
        name = "bsp"
    rate = flags.moving_rate if flags.moving_rate is not None else (EASGD_RATE if asked == "easgd" else None)
    if rate is not None and name != "bsp":  # --sync ignores it
        return name, {**own, "payload": "weights", "alpha": rate, "steps": flags.train}
    if flags.gradient_only:
        return name, {**own, "payload": "gradient"}
    own |= {"payload": "delta", "steps": flags.train}
    return name, own | ({"factor": flags.factor} if flags.factor is not None else {})


def _phases(flags: SpeedoFlags) -> str:
    """Returns the phases of `--hybrid =maxIter 100 =sync == =maxIter 200`, for `--hybrid.phases`.

    A phase of merges becomes steps of a worker. The last phase ends with the run. Raises ConfigError.
    """
    given = " ".join(flags.hybrid).split("==")
    texts = []
    for number, part in enumerate(given, 1):
        values = _phase_flags(part.split(), number)
        name, parameters = _strategy(SpeedoFlags(solver="", **values), "")
        inside = ", ".join(f"{key}={value}" for key, value in parameters.items())
        merges = values.get("max_iter")
        if merges is None and number < len(given):
            raise ConfigError(f"--hybrid, phase {number}: has no =maxIter")
        steps = (merges or 0) * values.get("train", 1)
        steps = steps if name == "bsp" else max(1, round(steps / flags.worker))
        texts.append(f"{name}({inside})" + (f" until {steps} steps" if number < len(given) else ""))
    return "; ".join(texts)


def _phase_flags(words: Sequence[str], number: int) -> dict[str, Any]:
    """Returns the flags of one phase by the fields of SpeedoFlags. Raises ConfigError."""
    kinds: dict[str, tuple[str, Any]] = {
        "maxIter": ("max_iter", int),
        "maxAdvance": ("max_advance", int),
        "weedout": ("weedout", int),
        "movingRate": ("moving_rate", float),
        "train": ("train", int),
        "factor": ("factor", float),
        "sync": ("sync", None),
        "gradientOnly": ("gradient_only", None),
    }
    values, left = dict[str, Any](), list(words)
    while left:
        name = left.pop(0).lstrip("=-")
        if name in ("test", "drop") and left:  # SpeeDO reads --drop nowhere; tests are those of the whole run
            left.pop(0)
            continue
        if name not in kinds:
            raise ConfigError(f"--hybrid, phase {number}: ={name} is not here; there are {', '.join(kinds)}")
        dest, kind = kinds[name]
        try:
            values[dest] = kind(left.pop(0)) if kind else True
        except (IndexError, ValueError):
            raise ConfigError(f"--hybrid, phase {number}: ={name} needs a number") from None
    return values
