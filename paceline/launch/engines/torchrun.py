"""Agents by torchrun, on this machine: one a worker, each with the RANK that torchrun gives.

torchrun starts processes on its own machine only; on several, it is started on each by hand, and the script or
`paceline train` finds its place by what it sets (`paceline.launch.external.detect`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

NAME = "torchrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Torchrun:
    """`extra`: more options for torchrun."""

    extra: tuple[str, ...] = ()
    name: str = NAME
    hint: str = "it comes with PyTorch"

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        flags = ["--standalone", f"--nproc-per-node={agents}", "--max-restarts=0", "--no-python"]
        return [sys.executable, "-m", "torch.distributed.run", *flags, *self.extra, *agent]

    def cancel(self) -> list[str]:
        return []
