"""Which other host leads a run that was started from here.

    RUN/leader.json                                        a key, and nothing else
    ~/.local/state/paceline/leaders/KEY.json (mode 0600)   the run's folder, and how the host that leads it is reached

A folder may be somebody else's: unpacked, cloned, on a shared disk. So nothing in it names a host, a program or an
ssh configuration. A key counts where this user's own state has it, for that folder.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path

import msgspec

from paceline.core.errors import ConfigError
from paceline.core.files.regular_file import read_regular

POINTER = "leader.json"
"""The name of the file in the run's folder."""
KEY = re.compile(r"[0-9a-f]{32}")
KEPT_SECONDS = 30 * 86400.0
"""Seconds that an entry is kept whose folder is not there: its disk may be mounted again."""


class LeaderHost(msgspec.Struct, frozen=True, kw_only=True):
    """Says how the host that leads a run is reached from the one where the command was typed.

    run           the run's folder here, an absolute path
    seen_from     the name of this host: the entry means nothing elsewhere, also where the home directory is shared
    began         when the run began, in seconds since 1970
    out           the run's folder there, as seen from `folder`, in which commands are executed
    python, path  the interpreter there, and its PYTHONPATH
    config        a file for ssh -F
    """

    run: str
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


class _Marker(msgspec.Struct, frozen=True):
    """Is the content of `leader.json`."""

    key: str


def point(folder: Path, leader: LeaderHost) -> None:
    """Notes that another host leads the run in `folder`, which is created. Raises OSError."""
    key = secrets.token_hex(16)
    folder.mkdir(parents=True, exist_ok=True)
    leaders = _leaders()
    leaders.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The key first: an entry that its folder does not point to may be removed by another command.
    (folder / POINTER).write_bytes(msgspec.json.encode(_Marker(key)))
    with open(os.open(leaders / f"{key}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(leader)))
    _remove_entries_of_no_folder(leaders, leader)


def leader_host(folder: Path) -> LeaderHost | None:
    """Returns who leads the run in `folder`, if that is another host and this user started the run from this one."""
    key = _key_in(folder)
    found = _entry(_leaders() / f"{key}.json") if key else None
    if found is None or (found.run, found.seen_from) != (str(folder.resolve()), socket.gethostname()):
        return None
    return found


def _key_in(folder: Path) -> str:
    """Returns the key that a run's folder has, or ""."""
    try:
        key = msgspec.json.decode(read_regular(folder / POINTER), type=_Marker).key
    except (OSError, msgspec.MsgspecError):
        return ""
    return key if KEY.fullmatch(key) else ""


def _entry(path: Path) -> LeaderHost | None:
    """Returns an entry of this user's state; None where it cannot be read."""
    try:
        return msgspec.json.decode(read_regular(path), type=LeaderHost)
    except (OSError, msgspec.MsgspecError):
        return None


def _remove_entries_of_no_folder(leaders: Path, newest: LeaderHost) -> None:
    """Removes entries of earlier runs that no folder points to any more: at once where the folder is another run's,
    and after KEPT_SECONDS where it is not there."""
    for path in leaders.glob("*.json"):
        entry = _entry(path)
        if entry is None or entry.seen_from != newest.seen_from:
            continue
        key = _key_in(Path(entry.run))
        if key != path.stem and (key or entry.began < newest.began - KEPT_SECONDS):
            path.unlink(missing_ok=True)


def _leaders() -> Path:
    """Returns the folder of this user's state, as the XDG base directory specification has it."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return Path(state if os.path.isabs(state) else Path.home() / ".local" / "state") / "paceline" / "leaders"
