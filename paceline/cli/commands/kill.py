"""`paceline kill` ends a run on all its machines, and nothing else."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from paceline.cli.support.find_run import add_run, found, leader_of, where_it_is_led
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.engines.callback_agents import CANCEL_SECONDS
from paceline.runtime.run_folder.status_file import STARTING, read_status

EPILOG = """examples:
  paceline kill runs/a                as Ctrl-C would: the run ends in order, and what there is is kept
  paceline kill runs/a --force        at once

The process that leads the run is asked, and ends all others on all machines; it has to run on this one. It is told by
its number, the time it began and the run's folder, so nobody else is ever hit. `paceline kill` once more, while the
run is still ending, is as good as a second Ctrl-C.
"""
SECONDS = 15.0
"""Seconds that a run has to end in order, before this command returns."""
FORCED_SECONDS = 5.0
"""Seconds that a run has to end at once, before the kernel ends its leader."""


@where_it_is_led
def main(arguments: list[str]) -> int:
    """Ends a run and returns the exit code: 0 if it has ended, 1 if it is still ending.

    Raises ConfigError for a run that is over or led from another machine, PacelineError for another user's.
    """
    parser = Parser(prog="paceline kill", usage="paceline kill [RUN] [--force]", description=__doc__, epilog=EPILOG)
    add_run(parser)
    parser.add_argument("--force", action="store_true", help="end it at once, without an orderly shutdown")
    options = parser.parse_all(arguments)
    folder = found(options.run)
    status = read_status(folder)
    leader = leader_of(folder, status, "kill")
    try:
        ended = _force(leader, starting=status.state == STARTING) if options.force else _ask(leader)
    finally:
        os.close(leader)
    if not ended:
        print(f"{folder} is still ending; once more ends it at once", file=sys.stderr)
        return 1
    print(f"{folder} has ended: {_reason(folder)}")
    return 0


def _reason(folder: Path) -> str:
    """Returns why the run ended, from its status file, for the line that is printed."""
    try:
        return read_status(folder).reason or "at once"
    except ConfigError:  # one that was still starting leaves nothing
        return "before it began"


def _ask(leader: int) -> bool:
    """Sends SIGTERM, as Ctrl-C would; returns whether the leader ended within SECONDS."""
    return _send(leader, signal.SIGTERM) or _waited(leader, SECONDS)


def _force(leader: int, *, starting: bool) -> bool:
    """Sends SIGTERM twice, which ends a run at once, then SIGKILL; returns whether the leader has ended.

    SIGKILL comes last, as the leader then has no chance to end processes on other machines: their agents notice the
    closed connection. A run that is starting gets more time, to take its job out of the queue: nobody else would.
    """
    patience = FORCED_SECONDS + (CANCEL_SECONDS if starting else 0.0)
    for number, seconds in ((signal.SIGTERM, 0.2), (signal.SIGTERM, patience), (signal.SIGKILL, FORCED_SECONDS)):
        if _send(leader, number) or _waited(leader, seconds):
            return True
    return False


def _send(leader: int, number: signal.Signals) -> bool:
    """Sends a signal; returns True if the leader has ended already. Raises PacelineError for another user's run."""
    try:
        signal.pidfd_send_signal(leader, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        raise PacelineError("it is another user's run: ask them, or be root") from None
    return False


def _waited(leader: int, seconds: float) -> bool:
    """Returns True if the leader ended within `seconds`: a pidfd is readable from then on."""
    return bool(select.select([leader], [], [], seconds)[0])
