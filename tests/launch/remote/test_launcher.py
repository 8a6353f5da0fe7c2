"""The launcher's side of its agents, with the other side played by hand."""

from __future__ import annotations

import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from paceline import config as configuration
from paceline.core.coordination.party import worker
from paceline.core.errors import ConfigError
from paceline.launch.local.launcher import LocalLauncher
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote.agent_messages import Event, Request
from paceline.launch.remote.hostfile import HostEntry
from paceline.launch.remote.launcher import RemoteHost, RemoteLauncher
from paceline.launch.remote.message_stream import MessageStream, SocketStream
from paceline.launch.remote.placement import Placement
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from tests.launch.process_tree import within

HERE = configuration.build({"run": {"out": "runs/here"}})


class Nobody:
    """No evaluator here."""

    def __init__(self) -> None:
        self.ended: queue.SimpleQueue[ProcessEnded] = queue.SimpleQueue()


def test_of_a_host_that_is_gone_the_reason_is_asked_for_once_and_told_of_each_party() -> None:
    asked: list[str] = []

    def why() -> str:
        asked.append("why")
        return "no route"

    ours, theirs = socket.socketpair()
    host = RemoteHost("h", MessageStream(SocketStream(ours), Event), why_gone=why)
    placement = Placement(hosts=(HostEntry(name="h"),), workers=(0, 0), slots=(0, 1), servers=(0,))
    launcher = RemoteLauncher(
        [host], placement, cast(LocalLauncher, Nobody()), scripts=True, said=lambda party, line: None
    )
    for party in ("worker 0", "worker 1", "server 0"):
        spec = ProcessSpec(party=party, workers=2, servers=1, coordinator="127.0.0.1:1", token="t", config=HERE)
        launcher.start(spec)
    assert launcher.busy()
    theirs.close()
    ends = [launcher.ended.get(timeout=20) for _ in range(3)]
    assert [end.why for end in ends] == [f"{end.who} is lost: host h is gone (no route)" for end in ends]
    assert asked == ["why"]
    host.close()


def test_a_host_of_which_something_is_heard_again_is_not_doubted_any_more() -> None:
    ours, theirs = socket.socketpair()
    lines: MessageStream[Event] = MessageStream(SocketStream(ours), Event)
    host = RemoteHost("h", lines)
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    host.follow(heard.put)
    host.doubt()
    theirs.sendall(b'{"word":"over"}\n')
    assert heard.get(timeout=20) == messages.RunOver()
    host._give_up()  # as after each beat
    lines.heard_at = time.monotonic() - 20  # silent, for another reason
    host._give_up()
    assert not _closed(theirs)
    host.doubt()  # at once: nobody waits for the next beat
    assert _closed(theirs)
    theirs.close()


def test_of_a_silent_host_nobody_asks_why_it_is_gone() -> None:
    asked: list[str] = []
    ours, theirs = socket.socketpair()
    lines: MessageStream[Event] = MessageStream(SocketStream(ours), Event)
    host = RemoteHost("h", lines, why_gone=lambda: asked.append("") or "")  # type: ignore[func-returns-value]
    lines.heard_at = time.monotonic() - 20
    host.doubt()
    theirs.close()
    assert within(20, lambda: not host.alive)
    assert re.fullmatch(r"host h is gone \(silent for 2\d\.\d s\)", host.gone())
    assert asked == []


def _closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    while True:
        try:
            if not sock.recv(4096):
                return True
        except BlockingIOError:
            return False


# ---- hosts that are lost, and others in their place --------------------------------------------------------
class Far:
    """A host, and the end of its lines where the agent would be."""

    def __init__(self, name: str) -> None:
        ours, self._socket = socket.socketpair()
        self.host = RemoteHost(name, MessageStream(SocketStream(ours), Event))
        self.lines: MessageStream[Request] = MessageStream(SocketStream(self._socket), Request)

    def hears(self) -> Request | None:
        return self.lines.hear(20)

    def goes(self) -> None:
        self.host.close()
        self._socket.close()
        assert within(10, lambda: not self.host.alive)


@pytest.fixture
def far() -> Iterator[Callable[[str], Far]]:
    """A new host of that name."""
    made: list[Far] = []

    def make(name: str) -> Far:
        made.append(Far(name))
        return made[-1]

    yield make
    for one in made:
        one.goes()


def launcher_of(a: Far, b: Far, patience_s: float) -> RemoteLauncher:
    placement = Placement(hosts=(HostEntry(name="a"), HostEntry(name="b")), workers=(0, 1), slots=(0, 0), servers=())
    hosts, nobody = [a.host, b.host], cast(LocalLauncher, Nobody())
    return RemoteLauncher(hosts, placement, nobody, scripts=True, said=lambda party, line: None, patience_s=patience_s)


def start(launcher: RemoteLauncher, incarnation: int = 0) -> None:
    spec = ProcessSpec(
        party="worker 0",
        workers=2,
        servers=0,
        coordinator="127.0.0.1:1",
        token="t",
        incarnation=incarnation,
        config=HERE,
    )
    launcher.start(spec)


def test_a_worker_whose_host_is_lost_waits_for_the_one_in_its_place(far: Callable[[str], Far]) -> None:
    a, b = far("a"), far("b")
    launcher = launcher_of(a, b, patience_s=600.0)
    a.goes()
    start(launcher, incarnation=1)
    another = far("c")
    launcher.rejoin(0, another.host)
    told = another.hears()
    assert isinstance(told, messages.StartProcess)
    assert '"incarnation":1' in told.spec.replace(" ", "")
    assert not any(
        isinstance(thread, threading.Timer) and not thread.finished.is_set() for thread in threading.enumerate()
    )
    b.host.close()
    assert b.hears() is None  # nothing was asked of it


@pytest.mark.parametrize("patience_s", [0.0, 0.05])
def test_one_that_waits_for_nobody_or_in_vain_goes_to_a_host_that_is_left(
    patience_s: float, far: Callable[[str], Far]
) -> None:
    a, b = far("a"), far("b")
    launcher = launcher_of(a, b, patience_s)
    a.goes()
    start(launcher)
    assert isinstance(b.hears(), messages.StartProcess)


def test_where_a_host_comes_back_that_was_not_missed_all_that_ran_there_is_lost(far: Callable[[str], Far]) -> None:
    a = far("a")
    launcher = launcher_of(a, far("b"), patience_s=600.0)
    start(launcher)
    launcher.rejoin(0, far("a").host)
    ended = launcher.ended.get(timeout=20)
    assert (str(ended.who), ended.why) == ("worker 0", "worker 0 is lost: host a is gone")
    assert isinstance(a.hears(), messages.StartProcess)
    assert a.hears() is None


def test_a_host_of_another_run_cannot_join_and_nobody_is_started_when_the_run_is_over(
    far: Callable[[str], Far],
) -> None:
    a, b = far("a"), far("b")
    launcher = launcher_of(a, b, patience_s=600.0)
    with pytest.raises(ConfigError, match="number 2, and this run has 2 agents"):
        launcher.check(2)
    a.goes()
    start(launcher)
    b.goes()
    launcher._local.end = lambda seconds: None  # type: ignore[method-assign]
    launcher.end(0.0)
    launcher._start_waiting(worker(0))  # as its clock would do
    assert launcher.ended.empty()  # it would say that no host is left


# ---- what each host gets ready for -------------------------------------------------------------------------
def test_each_host_is_asked_for_the_devices_of_its_own_workers_and_names_itself(far: Callable[[str], Far]) -> None:
    a, b = far("a"), far("b")
    launcher = launcher_of(a, b, patience_s=0.0)
    launcher._scripts = False
    launcher._local.prepare = lambda config, workers: 1437  # type: ignore[method-assign, assignment, misc]
    a.lines.say(messages.AgentPrepared(train_samples=1437))
    b.lines.say(messages.AgentRefused(why="--device cuda:0: torch finds no CUDA device here; give --device cpu"))
    with pytest.raises(ConfigError, match="^b: --device cuda:0: torch finds no CUDA device here"):
        launcher.prepare(configuration.build({"cluster": {"workers": 2, "device": "cpu,cuda:0"}}))
    asked = [one.hears() for one in (a, b)]
    assert [ask.workers for ask in asked if isinstance(ask, messages.Prepare)] == [[(0, 0)], [(1, 0)]]


# ---- hosts that are taken away -----------------------------------------------------------------------------
def test_hosts_are_taken_away_once_all_that_are_there_have_been_told_to_go(far: Callable[[str], Far]) -> None:
    a, b = far("a"), far("b")
    launcher, taken = launcher_of(a, b, patience_s=0.0), threading.Event()
    launcher.when_taken(taken.set)
    a.lines.say(messages.Leaving())
    assert within(10, lambda: a.host.leaving)
    assert not taken.is_set()  # b stays, and the run with it
    b.lines.say(messages.Leaving())
    assert taken.wait(10)


def test_a_host_that_is_gone_is_not_waited_for_and_who_asks_late_is_told_at_once(far: Callable[[str], Far]) -> None:
    a, b = far("a"), far("b")
    launcher, taken = launcher_of(a, b, patience_s=0.0), threading.Event()
    a.lines.say(messages.Leaving())
    assert within(10, lambda: a.host.leaving)
    b.goes()
    launcher.when_taken(taken.set)
    assert taken.wait(10)


def test_each_process_is_told_which_ranks_are_on_its_host_and_one_that_moves_is_not_among_them(
    far: Callable[[str], Far],
) -> None:
    """By that it finds which cores are its own (`runtime/spec/core_binding.py`)."""
    a, b = far("a"), far("b")
    launcher = launcher_of(a, b, patience_s=0.0)
    start(launcher)
    told = a.hears()
    assert isinstance(told, messages.StartProcess)
    assert ProcessSpec.from_json(told.spec).neighbours == (0,)
    a.goes()
    start(launcher, incarnation=1)
    moved = b.hears()
    assert isinstance(moved, messages.StartProcess)
    assert ProcessSpec.from_json(moved.spec).neighbours == (1,)
