"""Ray's nodes die and others come, while a run goes on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import ray_cluster
from tests.lab.lab import Lab, missing, not_asked, opened
from tests.lab.launch_run import Launched
from tests.lab.test_engines import left
from tests.launch.process_tree import within

WHY_NOT = not_asked() or missing() or ray_cluster.missing()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.timeout(300)]
TRAIN = "paceline train --data digits --scheme gsp --epochs 0 --seconds 600 --out run"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield from opened(tmp_path, 3)


def test_an_agent_that_dies_comes_back_and_a_node_that_joins_later_takes_the_place_of_one_that_died(lab: Lab) -> None:
    with ray_cluster.running(lab, ["h1", "h2"]) as address:
        placed = f"address={address} server.CPU=1 server.label=lead:yes"
        words = ["--launcher", "ray", "-n", "2", "--launcher-args", placed, *TRAIN.split()]
        launched = Launched(lab, *words, RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
        assert launched.says("accuracy", 120), launched.said
        agent = next(pid for pid in lab.pids("h2") if b"paceline.launch.remote.agent" in _command(pid))
        os.kill(agent, signal.SIGKILL)
        assert launched.says("is started again: it ended with -9", 30), launched.said
        assert launched.says("is back", 60), launched.said
        lab.die("h2")
        node = ray_cluster.start(lab, "h3", [f"--address={address}"])
        assert launched.says("(h3, pid", 120), launched.said
        launched.process.send_signal(signal.SIGINT)
        assert launched.ends(40) == 130, launched.said
        for host in ("h1", "h3"):
            assert within(10, lambda host=host: not left(lab, host, "ray")), left(lab, host, "ray")  # type: ignore[misc]
        node.terminate()
        node.wait(40)
    trace = [json.loads(line) for line in (lab.folder / "run" / "trace.jsonl").read_text().splitlines()]
    where: dict[str, list[str]] = {}
    for row in trace:
        if "host" in row:
            where.setdefault(row["party"], []).append(row["host"])
    assert where.pop("server 0") == ["h1"]
    assert sorted(where.pop(f"worker {rank}") for rank in range(2)) == [["h1"], ["h2", "h2", "h3"]]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
