"""A Ray cluster over the hosts of a lab: the head on h1, and a node on each other host; a worker's room on each."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.lab import Lab
from tests.launch.processes import within

PORT = 26379
QUIET = ("ray", "raylet", "gcs_server")  # what Ray itself leaves running


def missing() -> str:
    """Why there can be no Ray here; empty when there can."""
    return "" if importlib.util.find_spec("ray") else "Ray is not installed: pip install ray"


@contextmanager
def running(lab: Lab) -> Iterator[str]:
    """Its address. The lab's end is its end."""
    address = f"{lab.address('h1')}:{PORT}"
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # sockets want short names
        head = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={folder}"]
        nodes = [_start(lab, "h1", head)]
        assert within(60, lambda: "runtime started" in _log(lab, "h1")), _log(lab, "h1")
        for name in lab.names[1:]:
            nodes.append(_start(lab, name, [f"--address={address}"]))
        for name in lab.names[1:]:
            assert within(60, lambda name=name: "runtime started" in _log(lab, name)), _log(lab, name)  # type: ignore[misc]
        try:
            yield address
        finally:
            for node in nodes:
                node.terminate()
            for node in nodes:
                node.wait(20)


def _start(lab: Lab, host: str, words: list[str]) -> subprocess.Popen[bytes]:
    room = [f"--node-ip-address={lab.address(host)}", "--num-cpus=1", "--object-store-memory=100000000"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words, *room]
    with (lab.folder / f"ray_{host}.log").open("wb") as log:
        return subprocess.Popen(
            lab.command(host, *command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"},
        )


def _log(lab: Lab, host: str) -> str:
    path = Path(lab.folder / f"ray_{host}.log")
    return path.read_text(errors="replace") if path.exists() else ""
