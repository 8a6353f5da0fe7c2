"""Starts agents by torchrun, on this machine: one for each worker, each with the RANK that torchrun gives.

torchrun starts processes on its own machine only; on several, it is started on each by hand, and the script or
`paceline train` finds its place by what it sets (`paceline.launch.external.detect`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core.files.helper_command import helper_command

NAME = "torchrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Torchrun:
    """Describes a torchrun. `extra`: more options for it."""

    extra: tuple[str, ...] = ()
    name: str = NAME
    hint: str = "it comes with PyTorch"

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        """Returns the command that starts `agents` agents. They are not restarted: the launcher decides about that."""
        flags = ["--standalone", f"--nproc-per-node={agents}", "--max-restarts=0", "--no-python"]
        return helper_command("torch.distributed.run", *flags, *self.extra, *agent)

    def cancel(self) -> list[str]:
        """Returns []: torchrun ends its processes when it ends."""
        return []
