"""Parties for the fork server of this host."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from paceline.config import Config, build
from paceline.launch.local.launcher import LocalHost
from paceline.runtime.spec.process_spec import ProcessSpec
from tests.launch.process_tree import comm, descendants, within


def config_for(out: Path, **sections: Any) -> Config:
    return build({"run": {"scheme": "bsp", "out": str(out)}, "cluster": {"workers": 1}, **sections})


def spec_at(listener: socket.socket, out: Path, party: str = "worker 0") -> ProcessSpec:
    host, port = listener.getsockname()
    return ProcessSpec(
        party=party, workers=1, servers=0, coordinator=f"{host}:{port}", token="t", config=config_for(out)
    )


def pid_of(host: LocalHost, party: str) -> int:
    def named() -> list[int]:
        return [pid for pid in descendants(os.getpid()) if comm(pid) == f"pace {party}"[:15]]

    assert within(60, lambda: bool(named())), f"no process calls itself pace {party}"
    return named()[0]
