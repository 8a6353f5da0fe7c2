"""A Ray cluster over the hosts of a lab: the head on h1, and a node on each other host.

There is room for a worker on each, and for one more on h1, whose label is lead=yes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab.lab import Lab
from tests.launch.process_tree import within

PORT = 26379
HEALTH = {f"RAY_health_check_{name}": n for name, n in {"period_ms": "1000", "timeout_ms": "3000"}.items()}
"""A dead node is known after some 20 s, not 60."""
QUIET = ("ray", "raylet", "gcs_server")  # what Ray itself leaves running


def missing() -> str:
    """Why there can be no Ray here; empty when there can."""
    return "" if importlib.util.find_spec("ray") else "Ray is not installed: pip install ray"


@contextmanager
def running(lab: Lab, nodes: Sequence[str] = ()) -> Iterator[str]:
    """Its address; over those `nodes` of the lab, or all. The lab's end is its end."""
    address = f"{lab.address('h1')}:{PORT}"
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # sockets want short names
        head = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={folder}"]
        started = [start(lab, "h1", head)]
        assert within(60, lambda: "runtime started" in _log(lab, "h1")), _log(lab, "h1")
        others = [name for name in nodes or lab.names if name != "h1"]
        started += [start(lab, name, [f"--address={address}"]) for name in others]
        for name in others:
            assert within(60, lambda name=name: "runtime started" in _log(lab, name)), _log(lab, name)  # type: ignore[misc]
        try:
            yield address
        finally:
            for node in started:
                node.terminate()
            for node in started:
                node.wait(40)


def start(lab: Lab, host: str, words: list[str]) -> subprocess.Popen[bytes]:
    """A node there."""
    room = [
        f"--node-ip-address={lab.address(host)}",
        f"--num-cpus={2 if host == 'h1' else 1}",
        "--object-store-memory=100000000",
    ]
    room += [f"--labels=lead={'yes' if host == 'h1' else 'no'}"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words, *room]
    with (lab.folder / f"ray_{host}.log").open("wb") as log:
        return subprocess.Popen(
            lab.command(host, *command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", **HEALTH},
        )


def _log(lab: Lab, host: str) -> str:
    path = Path(lab.folder / f"ray_{host}.log")
    return path.read_text(errors="replace") if path.exists() else ""
