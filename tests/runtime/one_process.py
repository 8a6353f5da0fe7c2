"""Small runs that tests compare with one process (`benchmarks/_one_process.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from benchmarks._one_process import ATOL, RTOL, Weights, one_process, saved, torch_optimizer
from paceline.config import Config, build

__all__ = ["Weights", "assert_same", "config_for", "one_process", "resumed", "saved", "torch_optimizer"]


def config_for(out: Path, *, steps: int, workers: int = 2, servers: int = 1, **sections: Any) -> Config:
    """A small run on the digits that ends after `steps` steps a worker."""
    values: dict[str, dict[str, Any]] = {
        "run": {"scheme": sections.pop("scheme", "bsp"), "seed": 3, "out": str(out)},
        "cluster": {"workers": workers, "servers": servers, "timeout": 60.0, **sections.pop("cluster", {})},
        "data": {"batch_size": 32, **sections.pop("data", {})},
        "model": {"name": "mlp", "width": 0.25, **sections.pop("model", {})},
        "optimizer": {"momentum": 0.0, **sections.pop("optimizer", {})},
        "stop": {"epochs": 0.0, "steps": steps, **sections.pop("stop", {})},
    }
    return build({**values, **sections})


def resumed(out: Path, steps: int, resume: str = "never", **sections: Any) -> Config:
    """A small run that goes on, or not, where another one ended in this folder."""
    return config_for(out, steps=steps, checkpoint={"resume": resume}, **sections)


def assert_same(got: Weights, wanted: Weights) -> None:
    assert list(got) == list(wanted)
    for name, tensor in wanted.items():
        torch.testing.assert_close(got[name], tensor, rtol=RTOL, atol=ATOL, msg=lambda text, n=name: f"{n}: {text}")
