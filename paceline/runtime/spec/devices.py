"""Says on which devices workers train, and checks whether their host has them.

Nothing here imports torch, or asks CUDA anything: a process that has initialised CUDA cannot fork children that use
it, and the fork server forks all parties.
"""

from __future__ import annotations

import importlib.util
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.core.errors import ConfigError

if TYPE_CHECKING:
    from paceline.config import Config

Placed = tuple[int, int]
"""A worker: its rank, and which GPU of its host is its own where none is named."""


def device_for(wanted: str, number: int, gpus: int) -> str:
    """Returns the device for `wanted`: `auto` is the GPU of that `number` on a host with `gpus` GPUs, or else
    the CPU."""
    if wanted != "auto":
        return wanted
    return f"cuda:{number}" if number < gpus else "cpu"


def depend_on_gpus(config: Config, workers: Sequence[Placed]) -> bool:
    """Returns True if these workers could not train on a host without a GPU."""
    return config.model.precision == "fp16" or any(config.device_of(rank).startswith("cuda") for rank, _ in workers)


NAMES = {"cuda": "CUDA", "xpu": "XPU", "mps": "MPS"}
"""Kinds of device beside the CPU, as people write them. torch's ROCm goes by the name cuda."""


def check_devices(config: Config, workers: Sequence[Placed], gpus: int) -> None:
    """Raises ConfigError where one of these workers cannot train on a host that has so many `gpus`."""
    for rank, number in workers:
        device = device_for(config.device_of(rank), number, gpus)
        check_device(device, gpus)
        if config.model.precision == "fp16" and device == "cpu":
            raise ConfigError(
                f"--precision fp16: worker {rank} would be on the CPU ({_found(gpus)}), and fp16 needs a GPU for every "
                "worker; give --precision bf16 or fp32"
            )


def check_without_gpus(config: Config, workers: Sequence[Placed]) -> None:
    """Raises ConfigError where one of these workers needs a GPU and torch was built without. It does so without
    torch."""
    if depend_on_gpus(config, workers) and not torch_has_cuda():
        check_devices(config, workers, 0)


def gpus_of_ranks(device: str, first: int, ranks: int, visible: str | None) -> str | None:
    """Returns what CUDA_VISIBLE_DEVICES says to the processes of a worker; None for a worker without GPUs.

    device   cuda:0+1 names the GPUs; auto stands for `ranks` of them, from the `first` on
    visible  what CUDA_VISIBLE_DEVICES says here; None where it says nothing
    """
    kind, _, numbers = device.partition(":")
    if kind == "cpu":
        return None
    if kind == "cuda":
        wanted = numbers.split("+") if numbers else [str(n) for n in range(ranks)]
    else:
        wanted = [str(n) for n in range(first, first + ranks)]
    if visible is None:
        return ",".join(wanted)
    own = [name for name in visible.split(",") if name]
    return ",".join(own[int(n)] for n in wanted if int(n) < len(own))


def all_workers(config: Config) -> list[Placed]:
    """Returns the places of all workers of a run that are on one host: the GPU of a worker is that of its rank."""
    return [(rank, rank) for rank in range(config.cluster.workers)]


def check_device(device: str, gpus: int) -> None:
    """Raises ConfigError where a host that has so many `gpus` of this one's kind lacks it."""
    kind, _, numbers = device.partition(":")
    if kind in NAMES and max(map(int, (numbers or "0").split("+"))) >= gpus:
        raise ConfigError(f"--device {device}: {_found(gpus, kind)}; give --device {'auto' if gpus else 'cpu'}")


def _found(gpus: int, kind: str = "cuda") -> str:
    """Returns in words which GPUs of a kind torch finds, for the end of an error."""
    if gpus:
        found = f"one {NAMES[kind]} device, {kind}:0," if gpus == 1 else f"{kind}:0 to {kind}:{gpus - 1}"
        return f"torch finds {found} here"
    if kind != "cuda":
        return f"torch finds no {NAMES[kind]} device here"
    return "torch finds no CUDA device here" if torch_has_cuda() else "torch was built without CUDA here"


def torch_has_cuda() -> bool:
    """Returns True if the installed torch was built for GPUs: CUDA, or ROCm, which torch calls by the same name.

    It reads torch's `version.py` alone. Importing torch takes seconds, and the command need not wait for that to
    refuse.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    version = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    return bool(version.get("cuda") or version.get("hip"))
