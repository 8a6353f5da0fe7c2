"""Says which place this process has in a run, before it has joined: frameworks ask for device and rank first."""

from __future__ import annotations

import os

import torch

from paceline.engine.accelerators import count_of
from paceline.launch.local.environment import spec_from
from paceline.runtime.spec.devices import device_for


def rank_of_this_process() -> int:
    """Returns the rank that `paceline launch` gave this process; 0 without a launcher.

    Under torchrun, Slurm or MPI ranks are assigned by `paceline.join`, so a framework learns it then. Raises
    ConfigError for a broken environment.
    """
    spec = spec_from(os.environ)
    return 0 if spec is None else spec.who.index


def device_of_this_process() -> torch.device:
    """Returns the device that `paceline launch` gave this process; without a launcher the first GPU, or the CPU.

    Raises ConfigError for a broken environment.
    """
    gpus = count_of("cuda")
    spec = spec_from(os.environ)
    return torch.device(device_for("auto", 0, gpus) if spec is None else device_for(spec.device, spec.gpu, gpus))
