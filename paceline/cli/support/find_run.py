"""Which run is meant by RUN, for the verbs that look after one that was started: status, kill, logs."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from pathlib import Path

from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError
from paceline.core.files.own_path import steers
from paceline.core.files.safe_path import shown_path
from paceline.core.registry import nearest
from paceline.launch.detached.leader_pointer import POINTER, LedElsewhere, leader_host
from paceline.observe.trace.trace_file import TRACE
from paceline.runtime.run_folder.status_file import STATUS, Status, read_status

RUNS = Path("runs")
HELP = "folder of a run, or its name below runs/ (default: the newest there)"


def add_run(parser: Parser) -> None:
    """Adds the argument RUN, which may be left out."""
    parser.add_argument("run", nargs="?", metavar="RUN", help=HELP)


def found(run: str | None) -> Path:
    """Returns the folder of the run that is meant. Raises ConfigError, or LedElsewhere if another host leads it.

    RUN              folder
    left out         the run below runs/ that was started last
    a folder         that folder, which has to hold the status of a run
    another name     the folder of that name below runs/
    """
    if run is None:
        there = _below(RUNS)
        if not there:
            raise ConfigError("no run below runs/ in this folder: name the folder that --out of a run named")
        return _led_here(max(there, key=_began), run)
    folder = next((path for path in (Path(run), RUNS / run) if path.is_dir()), None)
    if folder is None:
        names = [str(path.relative_to(RUNS)) for path in _below(RUNS)]
        raise ConfigError(f"{run}: no such folder, nor below runs/{nearest(run, names) if names else ''}")
    if (folder / STATUS).is_file() or leader_host(folder):
        return _led_here(folder, run)
    if several := _below(folder):
        raise ConfigError(f"{folder} holds several runs: name one of them, e.g. {several[0]}")
    if (folder / TRACE).is_file():
        raise ConfigError(f"{folder}: a simulated run, or one of an older Paceline; see `paceline summary {folder}`")
    raise ConfigError(f"{folder}: not the folder of a run; name the folder that --out of a run named")


def where_it_is_led(main: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """Decorates the `main` of a verb about one run: if another host leads that run, the verb is executed there."""

    @functools.wraps(main)
    def here_or_there(arguments: list[str]) -> int:
        try:
            return main(arguments)
        except LedElsewhere as led:
            from paceline.launch.detached.other_host import forwarded  # ssh, which is not needed otherwise

            return forwarded(main.__module__.rpartition(".")[2], arguments, led)

    return here_or_there


def _below(folder: Path) -> list[Path]:
    """Returns the folders of runs below `folder`, those of races among them."""
    files = (path for part in ("*", "*/*") for name in (STATUS, POINTER) for path in folder.glob(f"{part}/{name}"))
    return sorted({path.parent for path in files if path.name == STATUS or leader_host(path.parent)})


def _led_here(folder: Path, given: str | None) -> Path:
    """Returns `folder`, which the user named as `given`. Raises LedElsewhere if another host leads its run."""
    if leader := leader_host(folder):
        raise LedElsewhere(folder, leader, given)
    return folder


def _began(folder: Path) -> float:
    """Returns when the run in `folder` began, in seconds since 1970."""
    leader = leader_host(folder)
    return leader.began if leader else read_status(folder).started


def who_leads(status: Status) -> str:
    """Returns the process and the host that lead the run, for messages."""
    return f"pid {status.pid} on {status.host}"


def elsewhere(status: Status) -> bool:
    """Returns True if another machine leads the run, as far as its name tells."""
    return status.host != socket.gethostname()


def leader_of(folder: Path, status: Status, verb: str) -> int:
    """Returns a descriptor (pidfd) of the process that leads the run; the caller closes it. Raises ConfigError for
    `verb`.

    A number of a process may come to mean another process once the first has ended; a descriptor never does. It is
    opened before the status is asked whether the process is still the leader: in the other order that process could
    end between the two, and another one be hit.
    """
    if status.ended:
        raise ConfigError(f"{folder} has ended already: {status.state}{f', {status.reason}' if status.reason else ''}")
    if not steers(folder / STATUS):
        raise ConfigError(
            f"{folder / STATUS} names a process, and others may have written it: `paceline {verb}` needs a file and a "
            "folder that are yours and that nobody else can write"
        )
    # A copied folder names the process of the original. A signal to it would end the original run.
    if status.folder != shown_path(folder.resolve()):
        raise ConfigError(f"{folder} is a copy of {status.folder}: that is the folder of the run; name it")
    if elsewhere(status):
        raise ConfigError(f"{folder} is led by {who_leads(status)}: run `paceline {verb}` there")
    if not hasattr(os, "pidfd_open"):
        raise ConfigError(f"{folder} is led by {who_leads(status)}: this system cannot tell it apart")
    gone = ConfigError(f"{folder} is gone already: its process {status.pid} was ended without a word")
    try:
        # The descriptor is opened before the identity is checked. If the process ends after the check, the
        # descriptor still refers to it, even when its number is given to another process.
        leader = os.pidfd_open(status.pid)
    except ProcessLookupError:
        raise gone from None
    if not status.here or not status.listens:
        os.close(leader)
        if status.here:
            raise ConfigError(f"{folder} is part of a program, {who_leads(status)}, that does not heed signals")
        raise gone
    return leader
