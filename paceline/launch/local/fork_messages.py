"""The messages between a fork server (`fork_server.py`) and its owner.

owner        fork server
ImportTorch  nothing; the import goes on while the owner does something else
LoadData     DataLoaded or LoadFailed
Fork         Forked, and ForkEnded when that process ends
SendSignal   nothing
"""

from __future__ import annotations

from typing import Any

from paceline.launch.local.line_messages import LaunchMessage


# ---- what it is asked --------------------------------------------------------------------------------------------
class ImportTorch(LaunchMessage, frozen=True, kw_only=True, tag="import"):
    """Asks to import what takes seconds, before it is needed."""


class LoadData(LaunchMessage, frozen=True, kw_only=True, tag="load"):
    """Asks to load the data of a run. `count_gpus`: the answer says how many GPUs there are."""

    config: dict[str, dict[str, Any]]
    count_gpus: bool


class Fork(LaunchMessage, frozen=True, kw_only=True, tag="fork"):
    """Asks to fork a party. `spec`: a ProcessSpec as JSON; `environment`: variables besides those of the fork
    server."""

    spec: str
    party: str
    log: str
    environment: dict[str, str]


class SendSignal(LaunchMessage, frozen=True, kw_only=True, tag="signal"):
    """Asks to send a signal to a forked process; it is ignored if that has ended."""

    pid: int
    number: int


# ---- what it answers ---------------------------------------------------------------------------------------------
class DataLoaded(LaunchMessage, frozen=True, kw_only=True, tag="loaded"):
    """Says that the data is loaded."""

    train_samples: int
    gpus: int


class LoadFailed(LaunchMessage, frozen=True, kw_only=True, tag="failed"):
    """Says in one line why the data cannot be loaded."""

    why: str


class Forked(LaunchMessage, frozen=True, kw_only=True, tag="forked"):
    """Says which process a party has."""

    party: str
    pid: int


class ForkEnded(LaunchMessage, frozen=True, kw_only=True, tag="ended"):
    """Says that a party's process has ended; `code` as subprocess has it, negative for a signal."""

    party: str
    pid: int
    code: int


ForkRequest = ImportTorch | LoadData | Fork | SendSignal
ForkAnswer = DataLoaded | LoadFailed | Forked | ForkEnded
