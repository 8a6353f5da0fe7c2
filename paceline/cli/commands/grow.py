"""`paceline grow` adds one or more workers to an active run."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from paceline.cli.support.find_run import add_run, found, leader_of, where_it_is_led
from paceline.cli.support.options import Parser
from paceline.config import build, load
from paceline.core.errors import ConfigError, PacelineError
from paceline.observe.runs.run_folders import CONFIG
from paceline.runtime.run_folder.status_file import PartyStatus, Status, read_status

EPILOG = """examples:
  paceline train --workers 4 --initial-workers 2 --out runs/a ...      two begin, and there is room for two more
  paceline grow runs/a                                            the third comes
  paceline grow runs/a --by 2                                     as many as there are places left, two at most

The newcomer takes over the model of the moment, and trains once everybody knows of it. The process that leads the run
starts it, where it would have started that worker at the beginning; so this has to run on its machine. Workers that
somebody else starts (docs/launch.md) need no `grow`: they come by themselves. The other way round, a worker that has
SIGTERM is drained; `paceline status` has its pid.
"""
PATIENCE_SECONDS = 30.0
"""Seconds to wait until one newcomer trains."""
LOOK_SECONDS = 0.2
"""Seconds between two looks at the status file."""


@where_it_is_led
def main(arguments: list[str]) -> int:
    """Adds workers one after the other; returns 0 if as many came as `--by` says, else 1.

    The leader is addressed by a pidfd, which cannot come to mean another process once the leader has ended. Each
    SIGUSR1 asks for one worker. Raises ConfigError for a run that has no room, and PacelineError for another user's.
    """
    usage = "paceline grow [RUN] [--by N]"
    parser = Parser(prog="paceline grow", usage=usage, description=__doc__, epilog=EPILOG)
    add_run(parser)
    parser.add_argument("--by", type=int, default=1, metavar="N", help="number of workers to add (default: 1)")
    options = parser.parse_all(arguments)
    if options.by < 1:
        raise ConfigError(f"--by {options.by}: give 1 or more")
    folder = found(options.run)
    status = read_status(folder)
    leader = leader_of(folder, status, "grow")
    try:
        _check(folder, status)
        there, came = _workers(status), 0
        specs = build(load(folder / CONFIG)).cluster.workers - len(there)
        while came < min(options.by, specs):
            _check(folder, read_status(folder))  # a signal to one that is ending would end it at once
            signal.pidfd_send_signal(leader, signal.SIGUSR1)
            newcomer = _newcomer(folder, there, leader)
            if newcomer is None:
                break
            there.add(newcomer.party)
            came += 1
            print(f"{newcomer.party} joined ({newcomer.host}, pid {newcomer.pid})", flush=True)
    except ProcessLookupError:
        raise PacelineError(f"{folder} has ended meanwhile") from None
    except PermissionError:
        raise PacelineError("it is another user's run: ask them, or be root") from None
    finally:
        os.close(leader)
    if came < options.by:
        why = "all places of --workers are taken" if came == specs else "the run says why"
        print(f"paceline: {folder}: {came} of {options.by} came: {why}", file=sys.stderr)
        return 1
    return 0


def _check(folder: Path, status: Status) -> None:
    """Raises ConfigError where nobody can join: the run began with all its workers, or is not training now."""
    if not status.grows:
        raise ConfigError(f"{folder} began with all its workers: start it with --workers MOST --initial-workers FEWER")
    if status.state != "training":
        raise ConfigError(f"{folder} is {status.state}: workers come while it is training")


def _workers(status: Status) -> set[str]:
    """Returns the names of all workers that the status file lists."""
    return {party.party for party in status.parties if party.party.startswith("worker")}


def _newcomer(folder: Path, before: set[str], leader: int) -> PartyStatus | None:
    """Waits for a worker that is not in `before` and trains, or has trained; returns its status, or None after
    PATIENCE_SECONDS.

    Raises ProcessLookupError when the leader has ended without one: its pidfd becomes readable then.
    """
    for _ in range(round(PATIENCE_SECONDS / LOOK_SECONDS)):
        has_ended = bool(select.select([leader], [], [], LOOK_SECONDS)[0])
        for party in read_status(folder).parties:
            is_new = party.party not in before and party.party.startswith("worker")
            if is_new and (party.state == "returned" or party.steps):
                return party
        if has_ended:
            raise ProcessLookupError
    return None
