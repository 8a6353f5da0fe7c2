"""The file in a run's folder that says which other host leads the run, for whoever looks at it from here."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from paceline.core.errors import ConfigError

POINTER = "leader.json"
"""The file's name."""


class LeaderHost(msgspec.Struct, frozen=True, kw_only=True):
    """Says how the host that leads a run is reached from the one where the command was typed.

    seen_from     the name of that one: the file means nothing elsewhere, also where the folder is shared
    began         when the run began, in seconds since 1970
    out           the run's folder there, as seen from `folder`, in which commands are executed
    python, path  the interpreter there, and its PYTHONPATH
    config        a file for ssh -F
    """

    seen_from: str
    began: float
    host: str
    out: str
    python: str
    folder: str
    path: str = ""
    config: str = ""
    port: int = 0
    user: str = ""


class LedElsewhere(ConfigError):  # noqa: N818  a place, not a fault
    """The run is led by another host, which alone knows its state.

    leader says how that host is reached. given: the word by which the user named the run; None for the newest one.
    """

    def __init__(self, folder: Path, leader: LeaderHost, given: str | None) -> None:
        super().__init__(f"{folder} is led by {leader.host}: run this there, in {leader.folder}")
        self.leader, self.given = leader, given


def leader_host(folder: Path) -> LeaderHost | None:
    """Returns who leads the run in `folder`, if that is another host and the run was started from this one."""
    try:
        found = msgspec.json.decode((folder / POINTER).read_bytes(), type=LeaderHost)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.seen_from == socket.gethostname() else None
