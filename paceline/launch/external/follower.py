"""The side of a process that somebody else starts: it calls the leader of the run and is assigned a part.

`detect.py` recognises such a process. On one host the ticket to the leader's listener
(`paceline.launch.external.leader`) lies in a folder that only this user can enter. Beyond it, everybody who has the
token in PACELINE_TOKEN_FILE can make the ticket, and nobody else can.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.helper_command import helper_command
from paceline.launch.external.detect import SCHEDULER, ExternalProcess, LeadRun, detect_external
from paceline.launch.external.rendezvous import secret_of, ticket_of, with_job
from paceline.launch.local.fork_server import die_with_parent
from paceline.launch.local.interfaces import resolve
from paceline.launch.local.line_messages import encode
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote.agent import hello
from paceline.launch.remote.agent_messages import Request
from paceline.launch.remote.callback_listener import enter_once, ticket_from
from paceline.launch.remote.message_stream import Heartbeat, MessageStream, hang_up
from paceline.live.addresses import is_loopback
from paceline.live.same_host.temporary_folder import TemporaryFolder
from paceline.runtime.spec.process_spec import ProcessSpec

CALLING_SECONDS = 300.0
"""Seconds for which a process calls a leader that is not there yet: people start processes by hand."""
AGAIN_SECONDS = 0.2
"""Seconds between two calls."""
LAST_SECONDS = 30.0
"""Seconds that rank 0 waits at its end for the leader."""


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment:
    """Holds the part that the leader assigned. The stream `lines` stays open for as long as the process takes part."""

    spec: ProcessSpec
    lines: MessageStream[Request]
    beat: Heartbeat

    def leave(self, code: int = 0) -> None:
        """Tells the leader that this process ends with that exit code, and hangs up."""
        self.lines.say(messages.RunOver(code=code))
        self.close()

    def close(self) -> None:
        """Hangs up; without a `leave` before it, the leader counts the process as lost."""
        self.beat.close()
        hang_up(self.lines)


def register(
    external: ExternalProcess, leader: subprocess.Popen[bytes] | None = None, *, prepare_s: float = 0.0
) -> Assignment:
    """Calls the leader, which may not be there yet, and returns the part that it assigns.

        leader     its process, where that is known, so that its end is noticed
        prepare_s  seconds that the leader may take to get ready, before it assigns parts

    Raises ConfigError for a refusal, PacelineError if nobody answers or all parts are taken.
    """
    lines, address = _call(external, leader)
    beat = Heartbeat(lines)
    patience_s = CALLING_SECONDS + prepare_s
    deadline = time.monotonic() + patience_s
    start = lines.hear(patience_s, deadline=deadline)
    if not isinstance(start, messages.StartProcess):
        beat.close()
        if isinstance(start, messages.AgentRefused):
            hang_up(lines)
            raise ConfigError(f"this process {start.why}")
        if start is None and time.monotonic() >= deadline:
            raise PacelineError(
                f"waited {patience_s:.0f} s for a place as {external.kind} at {_where(external)}: all are taken"
            )
        raise PacelineError(
            f"the run at {_where(external)} is over, or has another process for this place as {external.kind}"
        )
    spec = ProcessSpec.from_json(start.spec)
    bind = resolve(external.interface, "the interface") if external.interface else address
    spec = dataclasses.replace(spec, bind=bind if not is_loopback(spec.bind) else spec.bind, slot=external.slot)
    if start.keys:
        spec = _at_home(spec, start.keys)
    return Assignment(spec, lines, beat)


def _at_home(spec: ProcessSpec, keys: Mapping[str, str]) -> ProcessSpec:
    """Returns the spec with its keys on this host, in a folder that is removed with this process."""
    from paceline.live.security.certificate_authority import write_secret

    folder = TemporaryFolder("spec")
    _FOLDERS.append(folder)
    place = Path(folder.name, "credentials")
    place.mkdir(mode=0o700)
    for name, text in keys.items():
        write_secret(place, name, text.encode())
    return dataclasses.replace(spec, credentials=str(place))


_FOLDERS: list[Any] = []  # removed when the process ends


def _call(external: ExternalProcess, leader: subprocess.Popen[bytes] | None) -> tuple[MessageStream[Request], str]:
    """Calls the leader until it answers; returns the stream, and this host's address on the way to it."""

    def who() -> messages.AgentHello:
        """Returns what this process says of itself: as what it was started, and under which number."""
        return msgspec.structs.replace(hello(), kind=external.kind, task=external.number)

    secret = secret_of(external)
    path, known = ("", ticket_from(secret, external.host, external.port)) if secret else (ticket_of(external), "")
    deadline = time.monotonic() + CALLING_SECONDS
    waiting = threading.Event()
    while True:
        try:
            return enter_once(known or Path(path).read_text(encoding="utf-8"), who)
        # Nobody is there yet, or what an earlier run has left, or too many call.
        except (PacelineError, OSError, ValueError, KeyError, TypeError) as error:
            if leader is not None and leader.poll() is not None:
                raise PacelineError("the process that was to lead the run has ended; it says why above") from None
            if time.monotonic() > deadline:
                leads = "rank 0" if external.own_servers and external.starter != "external" else "its scheduler"
                raise PacelineError(
                    f"waited {CALLING_SECONDS:.0f} s for {leads} at {_where(external)}: is it started? ({error})"
                ) from None
        waiting.wait(AGAIN_SECONDS)


def _where(external: ExternalProcess) -> str:
    """Returns the leader's place for errors."""
    return f"{external.host}, port {external.port}" if external.host else "this host"


# ---- the incarnations of processes ----------------------------------------------------------------------------------
def find_place() -> Assignment | None:
    """Returns the place of a script that somebody has started in a row with others; None if nobody has.

    Rank 0 starts the leader first. The scheduler and servers of MXNet's manual starts do their part here, and exit.
    """
    external = detect_external(os.environ)
    if external is None:
        return None
    external = with_job(external)
    if external.kind == SCHEDULER:
        from paceline.launch.external.leader import run_leader

        sys.exit(run_leader(external, of_script(), trains=False))
    place = register(external, start_leader(external, of_script(), trains=False) if external.leads else None)
    if place.spec.who.kind == "server":
        sys.exit(take_part(place))
    return place


def of_script() -> dict[str, dict[str, Any]]:
    """Returns the settings of a run of this script: its command, after which the run is named, and who ends it."""
    return {
        "run": {"script": shlex.join(sys.argv).strip() or "a script"},
        "stop": {"epochs": 0.0, "until_stopped": True},
    }


def take_part(place: Assignment) -> int:
    """Runs a party of Paceline's own to its end, and returns the exit code."""
    from paceline.runtime import process_main

    code = process_main.main(place.spec)
    if code == 0:
        place.leave()
    return code


def start_leader(external: ExternalProcess, values: Mapping[str, Any], *, trains: bool) -> subprocess.Popen[bytes]:
    """Starts the leader as a process beside rank 0, which waits for it at its own end."""
    process = subprocess.Popen(
        helper_command("paceline.launch.external.leader"), stdin=subprocess.PIPE, preexec_fn=die_with_parent
    )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(
            encode(LeadRun(process=external, values={key: dict(of) for key, of in values.items()}, trains=trains))
        )
    atexit.register(_wait_for, process)
    return process


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    """Waits for the leader, which has some things to write when the last worker has left."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LAST_SECONDS)
