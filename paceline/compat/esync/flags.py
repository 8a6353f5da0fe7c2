"""What the flags of ESync's `main.py` mean: settings of a run, and one line for each that is not the same here.

    -m esync          `esync` in the preprint's form: all workers weigh the same, communication is not in the step time
    -m sync, async    `bsp`, `asp`; with -dcasgd 1 `dcasgd`
    -m local          one worker alone

ESync adds the losses of a batch up; here a loss is their mean. So -l and -ll, which are rates on the sum, are
multiplied by -b: 0.0005 with batches of 64 is 0.032 on the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.compat.esync.networks import NETWORKS
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

MODES = ("esync", "sync", "async", "local")
DATA = ("fashion-mnist", "cifar10")
Values = dict[str, dict[str, Any]]
NETWORK, SYNC, ASYNC = "resnet18-v1", "bsp", "asp"
SIDE = 28
"""Pixels a side of Fashion-MNIST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EsyncFlags:
    """Holds the flags by their long names, with the defaults of ESync's `config.py`.

    data_type and factor are those of its branch `dev`.
    """

    learning_rate: float = 0.0005
    local_lr: float = 0.0005
    global_lr: float = 1.0
    batch_size: int = 64
    data_dir: str = "data"
    gpu: int = 0
    cpu: int = 0
    network: str = NETWORK
    log_dir: str = "logs"
    eval_duration: int = 1
    mode: str = "esync"
    use_dcasgd: int = 0
    split_by_class: int = 0
    data_type: str = "fashion-mnist"
    factor: int = 1

    @property
    def scheme(self) -> str:
        """Returns the name of the scheme here. Raises ConfigError for a mode that is none."""
        _one_of("-m", self.mode, MODES)
        if self.mode == "async":
            return "dcasgd" if self.use_dcasgd else ASYNC
        return "esync" if self.mode == "esync" else SYNC

    @property
    def rate(self) -> float:
        """Returns the learning rate on the mean loss of a batch."""
        return self.batch_size * (self.local_lr if self.mode == "esync" else self.learning_rate)


def workers_of(flags: EsyncFlags, workers: int) -> int:
    """Returns how many workers the run has: one in mode `local`, otherwise `workers`."""
    return 1 if flags.mode == "local" else workers


def settings_of(flags: EsyncFlags, workers: int) -> tuple[Values, list[str]]:
    """Returns the settings of a run of `workers`, by section and key, and what a user has to know. Raises
    ConfigError."""
    _one_of("-n", flags.network, NETWORKS)
    _one_of("-dt", flags.data_type, DATA)
    if flags.factor != 1:
        raise ConfigError(
            f"-f {flags.factor}: give the slow-down of all workers, such as --slowdown 1,1,2,8 --step-ms 20"
        )
    if flags.eval_duration < 1:
        raise ConfigError(f"-e {flags.eval_duration}: rounds between two evaluations, 1 or more")
    scheme, network = flags.scheme, NETWORKS[flags.network]
    workers = workers_of(flags, workers)
    values: Values = {
        "run": {"scheme": scheme},
        "cluster": {"workers": workers, "device": "cpu" if flags.cpu else f"cuda:{flags.gpu}"},
        "model": {"name": network.model},
        "data": {
            "name": flags.data_type,
            "directory": f"{flags.data_dir}/{flags.data_type}",
            "batch_size": flags.batch_size,
            "partition": "class" if flags.split_by_class else "uniform",
        },
        "optimizer": {"name": "sgd", "lr": flags.rate, "momentum": 0.0, "weight_decay": 0.0},
        "evaluation": {"every": 0.01, "every_exchanges": flags.eval_duration * workers},
        # ESync's loops have no end.
        "stop": {"epochs": 0.0, "until_stopped": True},
    }
    if network.side != SIDE:
        values["data"]["resize"] = network.side
    if scheme == "esync":
        values["esync"] = {"global_lr": flags.global_lr, "variant": "preprint"}
    return values, list(_lines(flags, scheme))


def _lines(flags: EsyncFlags, scheme: str) -> list[str]:
    flag, rate = ("-ll", flags.local_lr) if flags.mode == "esync" else ("-l", flags.learning_rate)
    lines = [
        f"-m {flags.mode} is --scheme {scheme}; {flag} {rate:g} on the sum over a batch of {flags.batch_size} is "
        f"--lr {flags.rate:g} on the mean"
    ]
    if flags.use_dcasgd and flags.mode != "async":
        lines.append(f"-dcasgd is for -m async: in mode {flags.mode} it does nothing, as in ESync")
    if flags.split_by_class:
        lines.append("-s 1 is --partition class; samples are shuffled within a worker's share, which ESync does not do")
    return lines


def _one_of(flag: str, given: str, known: Any) -> None:
    if given not in known:
        raise ConfigError(f"{flag} {given}: must be one of {', '.join(known)}{nearest(given, list(known))}")
