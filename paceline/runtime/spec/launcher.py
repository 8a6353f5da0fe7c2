"""A launcher starts and ends the other parties of a run, for the supervisor."""

from __future__ import annotations

import queue
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from paceline.config import Config
    from paceline.core.coordination.party import Party
    from paceline.runtime.spec.process_spec import ProcessSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnded:
    """Says that a party's process has ended; `why` is empty when all went well.

    lost_coordinator: it ended because the coordinator was gone, so its end is no cause of a failure.
    other_version: it ended because it speaks another version than the run, so it never took part.
    """

    who: Party
    why: str
    lost_coordinator: bool = False
    other_version: bool = False


LOST_COORDINATOR_EXIT = 69
"""The exit code of a process of ours that ends because the coordinator has gone; EX_UNAVAILABLE of sysexits.h."""
OTHER_VERSION_EXIT = 76
"""The exit code of one that speaks another version of the protocol than the coordinator; EX_PROTOCOL of sysexits.h."""


def how_ended(code: int) -> str:
    """Returns what a process with this return code did: `ended with exit code 3`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # such as 40: of the real-time signals only the first and the last have names
        return f"was killed by signal {-code}"


class Launcher(Protocol):
    """Starts and ends the processes (or threads) of one run.

    The supervisor calls these methods from one thread. `ended` is a queue that the launcher fills from any thread,
    with each process once.
    """

    ended: queue.SimpleQueue[ProcessEnded]

    def prepare(self, config: Config) -> int:
        """Loads the data, so that everybody starts at once; returns the number of training samples. Raises
        ConfigError."""

    def start(self, spec: ProcessSpec) -> None:
        """Starts one party. Its end is put into `ended`, whatever it comes of."""

    def waits(self, who: Party) -> bool:
        """Returns True while nobody has been started for `who`: its host is away, or it comes by itself and has not."""

    def busy(self) -> bool:
        """Returns True while a process works that is no part of the run any more, such as a script after its
        training."""

    def kill(self, who: Party) -> None:
        """Kills the process of a party that the others have given up, if it still runs and can be killed."""

    def end(self, seconds: float) -> None:
        """Ends every process that still runs, with SIGTERM first; returns when none is left, or after `seconds`."""
