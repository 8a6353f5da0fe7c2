"""An agent and its launcher's side of the lines: what is started there ends with either of them."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline import config as configuration
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote import callback_listener as doors
from paceline.launch.remote import message_stream
from paceline.launch.remote.agent import hello
from paceline.launch.remote.agent_messages import Event
from paceline.launch.remote.callback_listener import CallbackListener, enter
from paceline.launch.remote.launcher import RemoteHost
from paceline.launch.remote.message_stream import MessageStream, SocketStream
from paceline.runtime.spec.process_spec import ProcessSpec
from tests.launch.process_tree import all_gone, descendants

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")


AGENT = [sys.executable, "-m", "paceline.launch.remote.agent"]


class Led:
    """A host whose agent is a child of this process."""

    def __init__(self, ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.host = RemoteHost("h", MessageStream(SocketStream(ours), Event))
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.host.follow(self.events.put)
        self.hello = self.host.answer()

    def start(self, *command: str, keys: dict[str, str] | None = None, **environment: str) -> None:
        """One worker that is this command."""
        self.host.ask(
            messages.BeginRun(environment={}, by_role={"worker": environment}, command=list(command), bind="")
        )
        assert isinstance(self.host.answer(), messages.Begun)
        spec = ProcessSpec(
            party="worker 0",
            workers=1,
            servers=1,
            coordinator="127.0.0.1:1",
            token="sesame",
            config=configuration.build({"run": {"out": "runs/here"}}),
        )
        self.host.ask(messages.StartProcess(spec=spec.to_json(), keys=keys or {}))

    def hears(self) -> Event:
        return self.events.get(timeout=60)


@pytest.fixture
def led() -> Iterator[Callable[[], Led]]:
    started: list[Led] = []

    def start() -> Led:
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(AGENT, stdin=theirs.fileno(), stdout=theirs.fileno())
        theirs.close()
        started.append(Led(ours, process))
        return started[-1]

    yield start
    for each in started:
        each.host.close()
        each.process.wait(20)


def test_a_command_gets_its_seat_and_its_keys_by_the_lines_and_nothing_of_them_is_seen(led: Callable[[], Led]) -> None:
    agent = led()
    script = 'echo $PACELINE_RANK $HUE; cd "$PACELINE_CREDENTIALS"; cat "$PACELINE_TOKEN_FILE" job; ls -ld "$PWD"'
    agent.start("sh", "-c", script, keys={"job": "urn:1\n"}, HUE="blue")
    said = []
    while isinstance(event := agent.hears(), messages.Said):
        said.append(event.line)
    assert said[0] == "0 blue"
    assert said[1] == "sesameurn:1"
    assert said[2].startswith("drwx------")
    assert event == messages.AgentProcessEnded(party="worker 0", why="")


def test_what_it_started_ends_when_its_owner_goes(led: Callable[[], Led]) -> None:
    agent = led()
    agent.start("sh", "-c", "sleep 1000 & echo up; wait")
    assert agent.hears() == messages.Said(party="worker 0", line="up")
    family = [agent.process.pid, *descendants(agent.process.pid)]
    assert len(family) >= 4  # agent, fork server, shell, sleep
    agent.host.close()
    agent.process.wait(20)
    assert all_gone(family)


def test_what_it_started_ends_when_it_is_killed(led: Callable[[], Led]) -> None:
    agent = led()
    agent.start("sh", "-c", "echo up; exec sleep 1000")
    agent.hears()
    family = descendants(agent.process.pid)
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait(20)
    assert all_gone(family)
    assert agent.hears() == messages.RunOver()  # its host knows that nobody is there any more
    assert not agent.host.alive


def test_an_end_is_told_with_its_cause(led: Callable[[], Led]) -> None:
    agent = led()
    agent.start("sh", "-c", "echo no such file; exit 3")
    agent.hears()
    ended = agent.hears()
    assert isinstance(ended, messages.AgentProcessEnded)
    assert ended.why.endswith("ended with exit code 3: no such file")


def test_a_command_has_ended_when_its_process_has_and_what_that_left_goes_with_it(led: Callable[[], Led]) -> None:
    agent = led()
    agent.start("sh", "-c", "sleep 1000 & echo $!; exit 3")  # the child keeps the output open
    said, ended = agent.hears(), agent.hears()
    assert isinstance(said, messages.Said)
    assert isinstance(ended, messages.AgentProcessEnded)
    assert "ended with exit code 3" in ended.why
    assert all_gone([int(said.line)])


def test_it_lacks_the_gpu_of_one_of_its_workers_and_says_so(led: Callable[[], Led]) -> None:
    host = led().host
    host.ask(messages.BeginRun(environment={}, by_role={}, command=[], bind=""))
    assert isinstance(host.answer(), messages.Begun)
    config = configuration.build({"cluster": {"workers": 2, "device": "cuda:99,cpu"}})
    host.ask(messages.Prepare(config=configuration.to_dict(config), workers=[(0, 0)]))
    with pytest.raises(ConfigError, match="--device cuda:99: torch .* here; give --device"):
        host.answer(120)


def test_it_says_what_it_cannot_do(led: Callable[[], Led]) -> None:
    agent = led()
    for begin, why in (
        (
            messages.BeginRun(environment={}, by_role={}, command=["no-such-program"], bind=""),
            "no such program in",
        ),
        (
            messages.BeginRun(environment={}, by_role={}, command=[], bind="192.0.2.77"),
            "cannot listen on 192.0.2.77",
        ),
        (messages.BeginRun(environment={}, by_role={}, command=[], bind="eth77"), "no such interface"),
    ):
        agent.host.ask(begin)
        with pytest.raises(ConfigError, match=why):
            agent.host.answer()


# ---- calling back ------------------------------------------------------------------------------------------------
@pytest.fixture
def door() -> Iterator[CallbackListener]:
    door = CallbackListener("127.0.0.1")
    yield door
    door.close()


def test_an_agent_calls_back_with_its_ticket(door: CallbackListener, tmp_path: Path) -> None:
    door.write_ticket(tmp_path / "ticket")
    process = subprocess.Popen([*AGENT, "--dial", str(tmp_path / "ticket")], env={**os.environ, "SLURM_PROCID": "3"})
    [(lines, hello)] = door.agents(1, 60)
    assert (hello.pid, hello.task) == (process.pid, 3)
    host = RemoteHost("h", lines)
    host.ask(messages.BeginRun(environment={}, by_role={}, command=["true"], bind=""))
    assert host.answer() == messages.Begun(address="127.0.0.1")
    host.close()
    process.wait(20)


def test_one_that_calls_again_counts_once_where_its_engine_starts_it_again(
    door: CallbackListener, tmp_path: Path
) -> None:
    door.write_ticket(tmp_path / "ticket")
    calling, heard = door.agents(2, 20, again=True), []
    for task in (1, 1, 0):
        hello = messages.AgentHello(host="x", pid=1, python="3", paceline="0", torch="2", task=task)
        mine, _ = enter(tmp_path / "ticket", lambda hello=hello: hello)  # type: ignore[misc]
        lines, said = next(calling)
        heard.append(said.task)
        RemoteHost("x", lines).close()
        message_stream.hang_up(mine)
    assert heard == [1, 1, 0]
    assert next(calling, None) is None


def test_who_has_another_token_or_no_tls_is_no_agent(door: CallbackListener, tmp_path: Path) -> None:
    told = json.loads(door.ticket)
    (tmp_path / "ticket").touch(mode=0o600)
    (tmp_path / "ticket").write_text(json.dumps({**told, "token": "wrong"}))
    hello = messages.AgentHello(host="x", pid=1, python="3", paceline="0", torch="2")
    with pytest.raises(PacelineError, match="it does not know the token of this process's ticket"):
        enter(tmp_path / "ticket", lambda: hello)
    with socket.create_connection((told["host"], told["port"])) as plain:
        plain.sendall(b'{"word":"hello"}\n')
        with pytest.raises(PacelineError, match="0 of 1 agents called back"):
            list(door.agents(1, 0.5))


def test_who_comes_while_others_are_heard_out_waits_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "STRANGERS_MAX", 1)
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 0.3)
    door = CallbackListener("127.0.0.1")
    told = json.loads(door.ticket)
    door.write_ticket(tmp_path / "ticket")
    with socket.create_connection((told["host"], told["port"])):  # says nothing
        said = messages.AgentHello(host="x", pid=1, python="3", paceline="0", torch="2")
        mine, _ = enter(tmp_path / "ticket", lambda: said)
        [(lines, hello)] = door.agents(1, 20)
    assert hello.host == "x"
    message_stream.hang_up(mine)
    assert lines.hear(20) is None
    door.close()


def test_an_agent_talks_to_no_launcher_but_its_own(door: CallbackListener, tmp_path: Path) -> None:
    other = CallbackListener("127.0.0.1")
    told = json.loads(door.ticket)
    (tmp_path / "ticket").touch(mode=0o600)
    (tmp_path / "ticket").write_text(json.dumps({**told, "port": json.loads(other.ticket)["port"]}))
    with pytest.raises(PacelineError, match="certificate verify failed"):
        enter(tmp_path / "ticket", hello)
    other.close()


def test_a_ticket_that_others_can_read_is_refused(door: CallbackListener, tmp_path: Path) -> None:
    (tmp_path / "ticket").write_text(door.ticket)
    (tmp_path / "ticket").chmod(0o644)
    with pytest.raises(ConfigError, match="can be read by others"):
        enter(tmp_path / "ticket", hello)
