"""Starts agents by Grid Engine: the tasks of one array job, and `qsub -sync y`, which stays until they have ended.

`qrsh -inherit` would need a parallel environment that the administrator has set up; an array job needs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from secrets import token_hex

NAME = "sge"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEngine:
    """Describes an array job. `job`: its own name, by which it is deleted; `logs`: a folder; `extra`: more options for
    qsub."""

    logs: str
    job: str = field(default_factory=lambda: f"paceline-{token_hex(4)}")
    path: str = ""
    extra: tuple[str, ...] = ()
    name: str = NAME
    hint: str = "run it where Grid Engine's commands are, with SGE_ROOT set"

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        """Returns the command that starts `agents` agents."""
        flags = ["-sync", "y", "-b", "y", "-cwd", "-j", "y", "-o", self.logs, "-N", self.job, "-t", f"1-{agents}"]
        flags += ["-v", f"PYTHONPATH={self.path}"] if self.path else []
        return ["qsub", *flags, *self.extra, *agent]

    def cancel(self) -> list[str]:
        """Returns the command that deletes the job: ending qsub does not."""
        return ["qdel", self.job]
