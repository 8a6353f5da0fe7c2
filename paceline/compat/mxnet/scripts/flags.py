"""Parses the flags of MXNet's training scripts and of its launcher, with their defaults.

`add_fit_args`, `add_data_args` and `add_data_aug_args` of `example/image-classification` (v1.x), and the flags that
MXNet-G's scripts had besides.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

TEXTS = {
    "network": None,
    "gpus": None,
    "kv-store": "device",
    "lr-step-epochs": None,
    "initializer": "default",
    "optimizer": "sgd",
    "model-prefix": None,
    "loss": "",
    "dtype": "float32",
    "gc-type": "none",
    "warmup-strategy": "linear",
    "profile-worker-suffix": "",
    "profile-server-suffix": "",
    "data-train": None,
    "data-train-idx": "",
    "data-val": None,
    "data-val-idx": "",
    "rgb-mean": "123.68,116.779,103.939",
    "rgb-std": "1,1,1",
    "image-shape": None,
    "data-dir": None,
    "log-file": None,
    "log-dir": None,
    "hostname": None,
    "dataset": None,
}
WHOLE = {
    "num-layers": None,
    "num-epochs": 100,
    "batch-size": 128,
    "disp-batches": 20,
    "save-period": 1,
    "monitor": 0,
    "load-epoch": None,
    "top-k": 0,
    "test-io": 0,
    "macrobatch-size": 0,
    "warmup-epochs": 5,
    "use-imagenet-data-augmentation": 0,
    "pad-size": 0,
    "fill-value": 127,
    "num-classes": None,
    "num-examples": None,
    "data-nthreads": 4,
    "benchmark": 0,
    "random-crop": 0,
    "random-mirror": 0,
    "random-resized-crop": 0,
    "max-random-h": 0,
    "max-random-s": 0,
    "max-random-l": 0,
    "max-random-rotate-angle": 0,
    "min-crop-size": -1,
    "max-crop-size": -1,
    "staleness": 0,
    "data-allocator": 0,
    "model-load-epoch": None,
}
REAL = {
    "lr": 0.1,
    "lr-factor": 0.1,
    "mom": 0.9,
    "wd": 0.0001,
    "gc-threshold": 0.5,
    "lr-factor-epoch": None,
    "min-random-aspect-ratio": None,
    "max-random-aspect-ratio": 0.0,
    "max-random-shear-ratio": 0.0,
    "max-random-scale": 1.0,
    "min-random-scale": 1.0,
    "max-random-area": 1.0,
    "min-random-area": 1.0,
    "brightness": 0.0,
    "contrast": 0.0,
    "saturation": 0.0,
    "pca-noise": 0.0,
}
SWITCHES = ("add_stn", "savemodel", "retrain")
OF_SCRIPT: dict[str, dict[str, Any]] = {
    "train_mnist.py": {
        "network": "mlp",
        "batch_size": 64,
        "disp_batches": 100,
        "num_epochs": 20,
        "lr": 0.05,
        "lr_step_epochs": "10",
        "num_classes": 10,
        "num_examples": 60_000,
        "image_shape": "1,28,28",
    },
    "train_cifar10.py": {
        "network": "resnet",
        "num_layers": 110,
        "num_classes": 10,
        "num_examples": 50_000,
        "image_shape": "3,28,28",
        "pad_size": 4,
        "num_epochs": 300,
        "lr": 0.05,
        "lr_step_epochs": "200,250",
        "data_train": "data/cifar10_train.rec",
        "data_val": "data/cifar10_val.rec",
    },
    "train_imagenet.py": {
        "network": "resnet",
        "num_layers": 50,
        "num_classes": 1000,
        "num_examples": 1_281_167,
        "image_shape": "3,224,224",
        "num_epochs": 80,
        "lr_step_epochs": "30,60",
    },
}
"""Defaults of each script where they differ from those of all."""


class _Parser(argparse.ArgumentParser):
    """Raises ConfigError where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}")


def flags_of(script: str, words: Sequence[str]) -> tuple[argparse.Namespace, set[str]]:
    """Returns all flags of a script, and the names of those that are given. Raises ConfigError for an unknown one."""
    parser = _Parser(prog=script, add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for kind, names in ((str, TEXTS), (int, WHOLE), (float, REAL)):
        for name in names:
            parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--image_shape")
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    given, unknown = parser.parse_known_args(list(words))
    if unknown:
        known = [f"--{name}" for name in (*TEXTS, *WHOLE, *REAL, *SWITCHES)]
        raise ConfigError(f"{script} has no flag {unknown[0]}{nearest(unknown[0].partition('=')[0], known)}")
    defaults = {name.replace("-", "_"): value for of in (TEXTS, WHOLE, REAL) for name, value in of.items()}
    defaults |= dict.fromkeys(SWITCHES, False) | OF_SCRIPT[script]
    return argparse.Namespace(**{**defaults, **vars(given)}), set(vars(given))


def launcher_flags(words: Sequence[str]) -> argparse.Namespace:
    """Returns the options of `tools/launch.py`, MXNet-G's too. Raises ConfigError for words that are none of them."""
    parser = _Parser(prog="launch.py", add_help=False, allow_abbrev=False)
    parser.add_argument("-n", "--num-workers", type=int, required=True)
    parser.add_argument("-s", "--num-servers", type=int)
    parser.add_argument("-H", "--hostfile")
    parser.add_argument("--launcher", default="ssh", choices=["local", "ssh", "mpi", "sge", "yarn"])
    parser.add_argument("--sync-dst-dir")
    for name in ("--env-server", "--env-worker", "--env"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--p3", action="store_true")
    parser.add_argument("-i", "--dmlc-interface")
    parser.add_argument("-p", "--parameter-partition-num", type=int)
    given, unknown = parser.parse_known_args(list(words))
    if unknown:
        raise ConfigError(f"launch.py has no option {unknown[0]}")
    if given.num_servers is None:
        given.num_servers = given.num_workers
    return given
