"""Who carries the means of a run: what is asked for, what follows from the cluster, and what is said of it."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from paceline.config import build
from paceline.core.errors import ConfigError
from paceline.launch.local.launcher import LocalHost


def test_a_carrier_that_makes_no_sense_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="with servers, the workers of asp average nothing"):
        build({"run": {"scheme": "asp"}, "cluster": {"allreduce": "ring"}})


def test_a_carrier_that_torch_was_built_without_is_refused_before_anybody_starts(host: LocalHost) -> None:
    if dist.is_mpi_available():
        pytest.skip("this PyTorch has MPI")
    config = build({"run": {"scheme": "bsp"}, "cluster": {"allreduce": "mpi", "servers": 0}})
    with pytest.raises(ConfigError, match="--allreduce mpi: this PyTorch was built without it; take --allreduce ring"):
        host.launcher().prepare(config)
