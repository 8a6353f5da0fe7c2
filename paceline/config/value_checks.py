"""Checks values of settings whose limits are not numbers or choices; each raises ValueError with the reason."""

from __future__ import annotations

import re

from paceline.core.registry import nearest
from paceline.engine import specs
from paceline.engine.import_path import is_path


def check_device(text: str) -> None:
    """Raises ValueError for what names no device."""
    for device in text.split(","):
        if not re.fullmatch(r"auto|cpu|cuda(:\d+(\+\d+)*)?|xpu(:\d+)?|mps(:0)?", device):
            raise ValueError(f"{device!r} is not a device; there are auto, cpu, cuda, cuda:N, xpu:N and mps")


def check_ranks(text: str) -> None:
    """Raises ValueError for what is no number of processes, or one for each worker."""
    if not re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})*", text):
        raise ValueError("must be a number of processes, or one for each worker, such as 4,4,1")


def check_torch_distributed(text: str) -> None:
    """Raises ValueError for what is no place where the processes of a group of torch.distributed can meet."""
    if text not in ("none", "auto") and not re.fullmatch(r"\S+:[1-9]\d{0,4}", text):
        raise ValueError("must be none, auto, or the host of worker 0 and a free port there, such as gpu1:29500")


def check_strikes(strikes: int) -> None:
    """Raises ValueError for 1, which would expel a worker for its first bad gradient."""
    if strikes == 1:
        raise ValueError("a single rejected gradient must not expel a worker: give 2 or more, or 0 to expel nobody")


def check_name(name: str, known: tuple[str, ...]) -> None:
    """Raises ValueError unless `name` is one of `known`, or names the user's own code: `module:function`,
    `file.py:function`."""
    if name not in known and not is_path(name):
        hint = nearest(name, known, listed=True)
        raise ValueError(f"must be one of {', '.join(known)}, or your own module:function{hint}")


def check_data(name: str) -> None:
    """Raises ValueError for what names no data set."""
    check_name(name, specs.DATASETS)


def check_model(name: str) -> None:
    """Raises ValueError for what names no network."""
    check_name(name, specs.MODELS)


def check_lr_scale(text: str) -> None:
    """Raises ValueError for what is no factor on the learning rate."""
    specs.parse_lr_scale(text)
