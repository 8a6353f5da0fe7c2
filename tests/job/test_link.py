"""The process of a coordinator is really killed, or stopped: nothing is lost, and nothing said twice."""

from __future__ import annotations

import json
import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline import config as configuration
from paceline.job import link as links
from paceline.job.link import Link
from paceline.job.standby import _begin
from paceline.live import control
from paceline.live.party import Party, server, worker
from paceline.live.replica import alone
from tests.launch.processes import within

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="forks")

PATIENCE_SECONDS = 60.0
EVERYBODY: tuple[Party, ...] = (server(0), worker(0), worker(1))
VALUES: dict[str, Any] = {"run": {"scheme": "bsp"}, "cluster": {"workers": 2, "servers": 1}, "stop": {"seconds": 1e6}}


class Ears:
    """What the link tells, in its order; what a coordinator says by itself."""

    def __init__(self) -> None:
        self.told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.heard: list[list[Any]] = []

    def said(self, of: list[Any]) -> None:
        self.heard.append(of)
        if of[0] == "answered":
            self.told.put(("answered", of[1]))

    def lost_process(self, why: str) -> None:
        self.told.put(("lost", why))

    def back(self, pid: int, lines: int) -> None:
        self.told.put(("back", pid))

    def gone(self, why: str) -> None:
        self.told.put(("gone", why))

    def next(self, what: str) -> Any:
        kind, value = self.told.get(timeout=PATIENCE_SECONDS)
        assert kind == what, value
        return value


class Scene:
    """A link that has begun, and all the lines that it was given."""

    def __init__(self, dead_after_s: float = 60.0) -> None:
        self.ears, self.link = Ears(), Link(dead_after_s)
        self.begin = [0.0, "begin", json.dumps(configuration.to_dict(configuration.build(VALUES))), 100, False]
        self.lines: list[list[Any]] = []
        self.link.begin(self.ears, self.begin)

    def put(self, *line: Any) -> None:
        self.lines.append(list(line))
        self.link.put(self.lines[-1])

    def heard(self, at: float, src: Party, message: Any) -> None:
        self.put(at, "heard", str(src), alone(message))

    def hello(self) -> None:
        for who in EVERYBODY:
            self.heard(1.0, who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu"))

    def ask(self, number: int) -> None:
        """Everything so far has been heard."""
        self.put(2.0, "asked", number, "missing", "")
        assert self.ears.next("answered") == number

    def standby(self) -> int:
        """Its pid, once there is one."""
        assert within(PATIENCE_SECONDS, lambda: self.link._standby is not None and self.link._standby.pid > 0)
        stream: Any = self.link._standby
        return int(stream.pid)

    def alone(self) -> list[list[Any]]:
        """What one says that hears the same without a break."""
        replica = _begin(*self.begin[2:])
        return [said for line in self.lines for said in replica.hear(line)]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.link.close()


def test_one_that_is_killed_is_replaced_and_says_what_it_would_have_said_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LINES_MAX", 2)  # standbys of many moments
    pid = scene.ears.next("back")
    for life in range(3):
        scene.hello() if life == 1 else scene.put(1.0, "tick")
        scene.ask(life)
        scene.standby()
        os.kill(pid, signal.SIGKILL)
        for who in EVERYBODY[1:]:
            scene.heard(1.5, who, control.Beat())
        scene.ears.next("lost")
        pid = scene.ears.next("back")
    scene.ask(9)
    assert scene.ears.heard == scene.alone()
    assert any(said[0] == "joined" for said in scene.ears.heard)


def test_before_there_is_a_standby_another_process_hears_all_lines(scene: Scene) -> None:
    assert within(PATIENCE_SECONDS, lambda: scene.link._process is not None)
    process: Any = scene.link._process
    process.kill()  # it starts, and has heard nothing
    scene.hello()
    scene.ears.next("lost")
    scene.ears.next("back")
    scene.ask(1)
    assert scene.ears.heard == scene.alone()


def test_one_that_is_lost_with_its_standby_is_lost_for_good(scene: Scene) -> None:
    pid = scene.ears.next("back")
    standby = scene.standby()
    os.kill(pid, signal.SIGSTOP)  # so that it makes no other one
    os.kill(standby, signal.SIGKILL)
    assert within(PATIENCE_SECONDS, lambda: scene.link._standby is None)
    os.kill(pid, signal.SIGKILL)
    assert "was killed by SIGKILL, and its standby with it" in scene.ears.next("gone")


def test_one_that_hangs_is_killed_and_replaced() -> None:
    scene = Scene(dead_after_s=5.0)
    try:
        pid = scene.ears.next("back")
        scene.standby()
        os.kill(pid, signal.SIGSTOP)
        assert f"pid {pid} was killed by SIGKILL" in scene.ears.next("lost")
        assert scene.ears.next("back") != pid
    finally:
        scene.link.close()
