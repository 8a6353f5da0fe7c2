"""A launcher starts and ends the other parties of a run, for the supervisor."""

from __future__ import annotations

import queue
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from paceline.config import Config
    from paceline.live.party import Party
    from paceline.runtime.spec.process_spec import ProcessSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnded:
    """A party's process has ended; `why` is empty when all went well.

    lost_coordinator: it ended because the coordinator had gone.
    """

    who: Party
    why: str
    lost_coordinator: bool = False


LOST_COORDINATOR_EXIT = 69
"""The exit code of a process of ours that ends because the coordinator has gone; EX_UNAVAILABLE of sysexits.h."""


def how_ended(code: int) -> str:
    """What a process with this return code did: `ended with exit code 3`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # such as 40: of the real-time signals only the first and the last have names
        return f"was killed by signal {-code}"


class Launcher(Protocol):
    """A launcher has the processes (or threads) of one run."""

    ended: queue.SimpleQueue[ProcessEnded]

    def prepare(self, config: Config) -> int:
        """Load the data, so that everybody starts at once; the number of training samples. Raises ConfigError."""

    def start(self, spec: ProcessSpec) -> None: ...

    def busy(self) -> bool:
        """Is somebody at work that is no part of the run, such as a script after its training?"""

    def kill(self, who: Party) -> None:
        """End one whom the others have given up, if it is still there and can be killed."""

    def end(self, seconds: float) -> None:
        """End everybody who is still there, asked first where they listen; returns when nobody is left."""
