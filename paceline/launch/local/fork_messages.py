"""What the owner of a fork server asks of it, and what it answers (`fork_server.py`)."""

from __future__ import annotations

from typing import Any

from paceline.launch.local.line_messages import LaunchMessage


# ---- what it is asked --------------------------------------------------------------------------------------------
class ImportTorch(LaunchMessage, frozen=True, kw_only=True, tag="import"):
    """Import what takes seconds, before it is needed."""


class LoadData(LaunchMessage, frozen=True, kw_only=True, tag="load"):
    """`count_gpus`: the answer says how many there are."""

    config: dict[str, dict[str, Any]]
    count_gpus: bool


class Fork(LaunchMessage, frozen=True, kw_only=True, tag="fork"):
    """`spec`: a ProcessSpec as JSON. `environment`: variables besides those of the fork server."""

    spec: str
    party: str
    log: str
    environment: dict[str, str]


class SendSignal(LaunchMessage, frozen=True, kw_only=True, tag="signal"):
    pid: int
    number: int


# ---- what it answers ---------------------------------------------------------------------------------------------
class DataLoaded(LaunchMessage, frozen=True, kw_only=True, tag="loaded"):
    train_samples: int
    gpus: int


class LoadFailed(LaunchMessage, frozen=True, kw_only=True, tag="failed"):
    why: str


class Forked(LaunchMessage, frozen=True, kw_only=True, tag="forked"):
    party: str
    pid: int


class ForkEnded(LaunchMessage, frozen=True, kw_only=True, tag="ended"):
    party: str
    pid: int
    code: int


ForkRequest = ImportTorch | LoadData | Fork | SendSignal
ForkAnswer = DataLoaded | LoadFailed | Forked | ForkEnded
