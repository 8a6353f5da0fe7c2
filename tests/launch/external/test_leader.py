"""The process that leads gives places to workers that somebody else starts."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline import __version__
from paceline.cli.main import main
from paceline.config import Config
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.external import follower, rendezvous
from paceline.launch.external import leader as leading
from paceline.launch.external.follower import Assignment, register
from paceline.launch.external.leader import ExternalLauncher
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote import message_stream
from paceline.launch.remote.agent import hello
from paceline.launch.remote.agent_messages import Request
from paceline.launch.remote.callback_listener import CallbackListener, enter
from paceline.launch.remote.message_stream import MessageStream
from paceline.live.protocol import frames
from paceline.observe.terminal.progress import ProgressDisplay, ProgressSnapshot
from paceline.runtime.spec.process_spec import ProcessSpec
from tests.launch.external.others import WORKER
from tests.launch.process_tree import within


@pytest.fixture
def launcher(alone: Path) -> Iterator[ExternalLauncher]:
    """Of who leads, who waits behind an open door."""
    listener = CallbackListener("127.0.0.1")
    listener.write_ticket(rendezvous.ticket_of(WORKER))
    launcher = ExternalLauncher(listener, dataclasses.replace(WORKER, own_servers=False), None)
    yield launcher
    launcher.end(0.0)


def spec(party: str, incarnation: int = 0) -> ProcessSpec:
    return ProcessSpec(party=party, workers=2, servers=1, coordinator="127.0.0.1:1", token="t", incarnation=incarnation)


def test_seats_go_to_who_asks_for_that_number_or_to_the_first_who_asks_for_none(launcher: ExternalLauncher) -> None:
    for party in ("server 0", "worker 0", "worker 1"):
        launcher.start(spec(party))
    second = register(dataclasses.replace(WORKER, number=1, slot=3))
    first, server = register(WORKER), register(dataclasses.replace(WORKER, kind="server"))
    assert [place.spec.party for place in (second, first, server)] == ["worker 1", "worker 0", "server 0"]
    assert (second.spec.slot, second.spec.bind, second.spec.token) == (3, "127.0.0.1", "t")
    for place in (first, second, server):
        place.close()


def test_who_comes_first_waits_for_a_seat_and_who_is_gone_is_missed_and_comes_back(launcher: ExternalLauncher) -> None:
    places: list[Assignment] = []
    early = threading.Thread(target=lambda: places.append(register(WORKER)))
    early.start()
    launcher.start(spec("worker 0"))
    early.join(10)
    places[0].close()
    ended = launcher.ended.get(timeout=10)
    assert ended.who == Party("worker", 0)
    assert f"worker 0 ({os.uname().nodename}, pid {os.getpid()}) is gone" in ended.why
    launcher.start(spec("worker 0", incarnation=1))
    again = register(WORKER)
    assert again.spec.incarnation == 1
    again.leave()
    assert launcher.ended.get(timeout=10).why == ""


def test_a_script_that_ends_with_a_bad_exit_code_is_told_with_it(launcher: ExternalLauncher) -> None:
    launcher.start(spec("worker 1"))
    register(WORKER).leave(3)
    why = launcher.ended.get(timeout=10).why
    assert why == f"worker 1 ({os.uname().nodename}, pid {os.getpid()}) ended with exit code 3"


def caller(number: int) -> MessageStream[Request]:
    """A worker that has called, and waits for its place."""
    said = msgspec.structs.replace(hello(), kind="worker", task=number)
    return enter(rendezvous.ticket_of(WORKER), lambda: said)[0]


@pytest.mark.parametrize("number", [-1, 0])
def test_a_seat_is_not_given_to_who_has_gone_while_waiting(launcher: ExternalLauncher, number: int) -> None:
    gone = caller(number)
    assert within(30, lambda: len(launcher._callers) == 1)
    gone.say(messages.AgentBeat())
    gone.close()
    assert gone.hear() is None
    there = caller(number)
    launcher.start(spec("worker 0"))
    assert isinstance(there.hear(20), messages.StartProcess)
    message_stream.hang_up(there)


def test_who_is_started_again_takes_the_place_of_who_waited_under_its_number(launcher: ExternalLauncher) -> None:
    first = caller(1)
    assert within(30, lambda: len(launcher._callers) == 1)
    again = caller(1)
    assert first.hear(20) is None
    launcher.start(spec("worker 1"))
    assert isinstance(again.hear(20), messages.StartProcess)
    message_stream.hang_up(again)


def test_callers_without_numbers_get_seats_in_the_order_in_which_they_came(launcher: ExternalLauncher) -> None:
    first = caller(-1)
    assert within(30, lambda: len(launcher._callers) == 1)
    second = caller(-1)
    assert within(30, lambda: len(launcher._callers) == 2)
    for number in (0, 1):
        launcher.start(spec(f"worker {number}"))
    told = [lines.hear(20) for lines in (first, second)]
    assert [ProcessSpec.from_json(start.spec).party for start in told if isinstance(start, messages.StartProcess)] == [
        "worker 0",
        "worker 1",
    ]
    for lines in (first, second):
        message_stream.hang_up(lines)


OTHERS = {
    "paceline": ("0.0.9", f"has Paceline 0.0.9, and {__version__} is at HERE, which leads the run"),
    "torch": ("1.0", f"has torch 1.0, and {importlib.metadata.version('torch')} is at HERE, which leads the run"),
    "protocol": (7, f"speaks protocol version 7, and {frames.VERSION} is spoken at HERE, which leads the run"),
    "byte_order": ("mixed", f"is mixed-endian, and numbers are {sys.byteorder}-endian at HERE, which leads the run"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_who_cannot_take_part_hears_why_with_the_way_out_and_its_seat_waits_for_one_that_fits(
    what: str, launcher: ExternalLauncher, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    value, says = OTHERS[what]
    says = says.replace("HERE", socket.gethostname())
    launcher.start(spec("worker 0"))
    other = msgspec.structs.replace(hello(), **{what: value})
    with monkeypatch.context() as there:
        there.setattr(follower, "hello", lambda: other)
        with pytest.raises(ConfigError, match=f"this process {re.escape(says)}.*; (install|use) "):
            register(WORKER)
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert f"paceline: worker ({other.host}, pid {os.getpid()}) is refused: it {says}" in told
    place = register(WORKER)
    assert place.spec.party == "worker 0"
    place.close()


def test_the_data_of_scripts_are_not_ours_to_load() -> None:
    class Local:
        ended = None

        def prepare(self, config: Config, workers: Sequence[object]) -> int:
            assert not workers, "they are on hosts of their own, with devices of their own"
            return 1437

    listener = CallbackListener("127.0.0.1")
    local: Any = Local()
    assert ExternalLauncher(listener, WORKER, local).prepare(Config()) == 1
    assert ExternalLauncher(listener, WORKER, local, trains=True).prepare(Config()) == 1437
    listener.close()


def test_who_waits_for_a_seat_too_long_is_told_so_and_not_that_the_run_is_over(
    launcher: ExternalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "CALLING_SECONDS", 0.2)
    with pytest.raises(PacelineError, match=r"waited 1 s for a place as worker at 127.0.0.1, port 0: all are taken"):
        register(WORKER, prepare_s=0.4)


def test_when_the_run_is_over_whoever_waits_for_a_seat_hears_it(launcher: ExternalLauncher) -> None:
    failures: list[str] = []

    def late() -> None:
        with pytest.raises(PacelineError) as error:
            register(WORKER)
        failures.append(str(error.value))

    launcher.start(spec("worker 0"))
    place = register(WORKER)
    waiting = threading.Thread(target=late, daemon=True)
    waiting.start()
    assert within(30, lambda: bool(launcher._callers))
    launcher.end(0.0)
    waiting.join(10)
    place.close()
    assert "is over, or has another process for this place as worker" in failures[0]


def test_who_leads_listens_where_it_is_told_and_not_where_nobody_else_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    rank_0 = dataclasses.replace(WORKER, number=0, leads=True, host="debian")
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.1.1", 0))])
    with pytest.raises(ConfigError, match="debian is 127.0.1.1 here, where no other host calls: name who leads by"):
        leading._listens_on(rank_0)
    assert leading._listens_on(dataclasses.replace(rank_0, interface="10.0.0.7")) == "10.0.0.7"
    assert leading._listens_on(dataclasses.replace(rank_0, host="localhost")) == "127.0.1.1"


def test_what_happens_in_a_run_of_scripts_is_on_the_terminal_of_rank_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lead(*_: Any, display: ProgressDisplay, **__: Any) -> int:
        display.show(ProgressSnapshot(scheme="bsp", elapsed_s=1.0, samples=8, epochs=None, workers=()))
        display.begin(("26 parameters on 1 server",))
        display.begin(("worker 1 lost after 3 steps: it is gone; 2 of 3 continue",))
        display.close()
        return 0

    monkeypatch.setattr(leading, "lead", lead)
    assert leading.run_leader(WORKER, {}, trains=False) == 0
    assert capsys.readouterr().err == "paceline: worker 1 lost after 3 steps: it is gone; 2 of 3 continue\n"


def test_options_are_held_against_the_numbers_that_the_starter_gives(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": 1, "WORLD_SIZE": 3, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 3}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(follower, "CALLING_SECONDS", 0.0)
    assert main(["train", "--step-ms", "5", "--slowdown", "1,1,8"]) == 1
    assert "waited 0 s for rank 0" in capsys.readouterr().err
    assert main(["train", "--step-ms", "5", "--slowdown", "1,1,1,8"]) == 2
    assert "--slowdown names 4 workers, --workers says 3" in capsys.readouterr().err
    assert main(["train", "--watch"]) == 2
    assert "--watch: run `paceline watch` where the run is led" in capsys.readouterr().err
