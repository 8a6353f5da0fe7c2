"""Parties that somebody else starts: each calls who leads the run, and is given its seat (`paceline.launch.starters`).

    python -m paceline.launch.byhand     leads a run: the coordinator, and servers where nobody starts them

Who leads opens a door (`paceline.launch.door`); over the same words as an agent a caller says as what it comes, and
hears Start. On one host the ticket to the door lies in a folder that only this user can enter. Beyond it, everybody
who has the token in PACELINE_TOKEN_FILE can make the ticket, and nobody else can. A caller whose stream ends is lost;
who is started again calls again, and takes the seat over.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import queue
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from paceline import config as configuration
from paceline.config import Config
from paceline.core.errors import ConfigError, PacelineError
from paceline.job.crew import Ended
from paceline.job.seat import Seat
from paceline.job.standing import fields_of
from paceline.launch import words
from paceline.launch.agent import hello
from paceline.launch.agents import keys_of
from paceline.launch.door import Caller, Door, call, ticket_from
from paceline.launch.forkserver import die_with_parent
from paceline.launch.interface import resolve
from paceline.launch.local import LocalCrew, LocalHost
from paceline.launch.run import Silent, conductor_of, new_folder, next_folder
from paceline.launch.starters import SCHEDULER, Hand, by_hand
from paceline.launch.words import Beating, Event, Lines, Request
from paceline.live.party import Party
from paceline.live.tcp import is_loopback
from paceline.observe.progress import View, make_view

TOKEN = "PACELINE_TOKEN_FILE"
TOKEN_CHARACTERS_MIN = 32
CALLING_SECONDS = 300.0
AGAIN_SECONDS = 0.2
LAST_SECONDS = 30.0
HOW = "make one by `openssl rand -hex 32 > token; chmod 600 token`, copy it to every host, and set " + TOKEN


# ---- who leads -----------------------------------------------------------------------------------------------
class HandCrew:
    """Parties that come by themselves; those of other kinds are `local`'s."""

    def __init__(self, door: Door, hand: Hand, local: LocalCrew | None, *, trains: bool = False) -> None:
        """`local` may be missing where somebody starts servers, too, and there is no evaluator.

        trains: parties are `paceline train`'s own, and have its data; those of scripts are nobody else's affair.
        """
        self._trains = trains
        self._kinds = {"worker"} if hand.own_servers else {"worker", "server"}
        self._local = local
        self.ended: queue.SimpleQueue[Ended] = local.ended if local else queue.SimpleQueue()
        self._lock = threading.Lock()
        self._callers: list[Caller] = []  # who has no seat
        self._wanted: list[tuple[Config, Seat]] = []  # seats that nobody has taken
        self._taken: dict[str, Lines[Event]] = {}
        self._door = door
        threading.Thread(target=self._receive, name="door", daemon=True).start()

    def prepare(self, config: Config) -> int:
        return self._local.prepare(config) if self._local and self._trains else 1

    def start(self, config: Config, seat: Seat) -> None:
        if seat.who.kind not in self._kinds:
            assert self._local is not None
            self._local.start(config, seat)
            return
        with self._lock:
            self._wanted.append((config, seat))
        self._match()

    def busy(self) -> bool:
        """What scripts do after their training is their own affair."""
        return False

    def kill(self, who: Party) -> None:
        if who.kind not in self._kinds and self._local:
            self._local.kill(who)
        elif lines := self._taken.get(str(who)):
            lines.close()

    def end(self, seconds: float) -> None:
        self._door.close()
        for lines in list(self._taken.values()):
            lines.close()
        with self._lock:
            while self._callers:
                _hang_up(self._callers.pop()[0])
        if self._local:
            self._local.end(seconds)

    def _receive(self) -> None:
        while (caller := self._door.caller()) is not None:
            seat = (caller[1].kind, caller[1].task)
            with self._lock:
                if caller[1].task >= 0:  # it was started again
                    self._forget([c for c in self._callers if (c[1].kind, c[1].task) == seat])
                self._callers.append(caller)
            self._match()

    def _forget(self, callers: Sequence[Caller]) -> None:
        for caller in callers:
            self._callers.remove(caller)
            _hang_up(caller[0])

    def _match(self) -> None:
        """Give seats to those who have called for one of that kind, and of that number if they say one."""
        with self._lock:
            if self._wanted:
                self._forget([caller for caller in self._callers if caller[0].hung_up])
            for config, seat in list(self._wanted):
                asked = (seat.who.kind, seat.who.index)
                ours = [c for c in self._callers if (c[1].kind, c[1].task) in (asked, (asked[0], -1))]
                if ours:
                    self._wanted.remove((config, seat))
                    self._callers.remove(ours[0])
                    self._seat(config, seat, *ours[0])

    def _seat(self, config: Config, seat: Seat, lines: Lines[Event], caller: words.Hello) -> None:
        self._taken[seat.party] = lines
        told = words.Start(config=configuration.to_dict(config), seat=seat.to_json(), keys=keys_of(seat))
        lines.say(told)
        threading.Thread(target=self._follow, args=(seat, lines, caller), name=seat.party, daemon=True).start()

    def _follow(self, seat: Seat, lines: Lines[Event], caller: words.Hello) -> None:
        why = f"{seat.party} ({caller.host}, pid {caller.pid}) is gone"
        while (event := lines.hear()) is not None:
            if isinstance(event, words.Over):
                why = ""
        if self._taken.get(seat.party) is lines:
            del self._taken[seat.party]
        self.ended.put(Ended(who=seat.who, why=why))


def _hang_up(lines: Lines[Any]) -> None:
    lines.close()
    while lines.hear() is not None:  # until nothing is left to be heard, which frees the socket
        pass


def lead(
    hand: Hand,
    values: Mapping[str, Mapping[str, Any]],
    *,
    trains: bool,
    run: Callable[[Any, str], int],
    view: View,
) -> int:
    """Lead the run until it is over, as `run` has it, who is given the conductor and the folder; the exit code.

    `trains`: parties are `paceline train`'s own; otherwise scripts.
    """
    values = with_numbers(hand, values)
    cluster = {**values["cluster"], "bind": _listens_on(hand)}
    own = {"scheme": "bsp", "out": next_folder(hand.starter)} if not trains else {}
    run_values = {**own, **values.get("run", {})}
    run_values["verbose"] = max(hand.verbose, int(run_values.get("verbose", 0)))
    config = configuration.build({**values, "cluster": cluster, "run": run_values})
    config = new_folder(config)
    secret = _secret(hand)
    port = 0 if not hand.host else hand.port
    with contextlib.ExitStack() as stack:
        door = Door(config.cluster.bind, port, secret)
        stack.callback(door.close)
        if not secret:
            path = _ticket(hand)
            path.unlink(missing_ok=True)
            door.write_ticket(path)
            stack.callback(path.unlink, missing_ok=True)
        host = stack.enter_context(LocalHost()) if trains or hand.own_servers else None
        crew = HandCrew(door, hand, host.crew() if host else None, trains=trains)
        conductor = conductor_of(config, crew, view, evaluator=trains, open_seats=True)
        return run(conductor, config.run.out)


def with_numbers(hand: Hand, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """`values` with as many workers and servers as were started, or are to be."""
    numbers = {"workers": hand.workers, "servers": hand.servers}
    if hand.begin_with:
        numbers["begin_with"] = hand.begin_with
    return {**values, "cluster": {**values.get("cluster", {}), **numbers}}


def _listens_on(hand: Hand) -> str:
    if not hand.host:
        return "127.0.0.1"
    if hand.interface:
        return resolve(hand.interface, "the interface")
    try:
        address = str(socket.getaddrinfo(hand.host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ConfigError(f"{hand.host}: {error.strerror}; name the host that leads the run") from None
    if is_loopback(address) and not is_loopback(hand.host):
        raise ConfigError(f"{hand.host} is {address} here, where no other host calls: name who leads by its address")
    return address


# ---- who comes -----------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """What a caller was given. `lines` stay open for as long as it takes part."""

    config: dict[str, dict[str, Any]]
    seat: Seat
    lines: Lines[Request]
    beat: Beating

    def leave(self) -> None:
        """All went well."""
        self.lines.say(words.Over())
        self.close()

    def close(self) -> None:
        self.beat.close()
        _hang_up(self.lines)


def come(hand: Hand, leader: subprocess.Popen[bytes] | None = None, *, prepare_s: float = 0.0) -> Place:
    """Call who leads, who may not be there yet, and take a seat; `leader` is its process, where that is known.

    prepare_s: how long who leads may take to get ready, before it gives out seats. Raises ConfigError, PacelineError.
    """
    stream, token, address = _call(hand, leader)
    lines: Lines[Request] = Lines(stream, Request)
    lines.say(msgspec.structs.replace(hello(token), kind=hand.kind, task=hand.number))
    beat = Beating(lines)
    patience_s = CALLING_SECONDS + prepare_s
    deadline = time.monotonic() + patience_s
    start = lines.hear(patience_s, deadline=deadline)
    if not isinstance(start, words.Start):
        beat.close()
        if start is None and time.monotonic() >= deadline:
            raise PacelineError(f"waited {patience_s:.0f} s for a seat as {hand.kind} at {_where(hand)}: all are taken")
        raise PacelineError(f"the run at {_where(hand)} is over, or has another process for this seat as {hand.kind}")
    seat = Seat.from_json(start.seat)
    bind = resolve(hand.interface, "the interface") if hand.interface else address
    seat = dataclasses.replace(seat, bind=bind if not is_loopback(seat.bind) else seat.bind, slot=hand.slot)
    if start.keys or not Path(seat.rendezvous).is_dir():
        seat = _at_home(seat, start.keys)
    return Place(start.config, seat, lines, beat)


def _at_home(seat: Seat, keys: Mapping[str, str]) -> Seat:
    """With keys and a rendezvous on this host, in a folder that goes with this process."""
    from paceline.job.authority import write_secret

    folder = tempfile.TemporaryDirectory(prefix="paceline-seat-")
    _FOLDERS.append(folder)
    place = Path(folder.name, "credentials")
    place.mkdir(mode=0o700)
    for name, text in keys.items():
        write_secret(place, name, text.encode())
    return dataclasses.replace(seat, credentials=str(place) if keys else "", rendezvous=folder.name)


_FOLDERS: list[Any] = []  # removed when the process ends


def _call(hand: Hand, leader: subprocess.Popen[bytes] | None) -> tuple[words.SocketStream, str, str]:
    secret = _secret(hand)
    path, known = ("", ticket_from(secret, hand.host, hand.port)) if secret else (_ticket(hand), "")
    deadline = time.monotonic() + CALLING_SECONDS
    waiting = threading.Event()
    while True:
        try:
            return call(known or Path(path).read_text(encoding="utf-8"))
        # Nobody is there yet, or what an earlier run has left.
        except (PacelineError, OSError, ValueError, KeyError, TypeError) as error:
            if leader is not None and leader.poll() is not None:
                raise PacelineError("the process that was to lead the run has ended; it says why above") from None
            if time.monotonic() > deadline:
                leads = "rank 0" if hand.own_servers and hand.starter != "hand" else "its scheduler"
                raise PacelineError(
                    f"waited {CALLING_SECONDS:.0f} s for {leads} at {_where(hand)}: is it started? ({error})"
                ) from None
        waiting.wait(AGAIN_SECONDS)


def _where(hand: Hand) -> str:
    return f"{hand.host}, port {hand.port}" if hand.host else "this host"


# ---- how they find one another -------------------------------------------------------------------------------
def _secret(hand: Hand) -> str:
    """What everybody has in a file; empty on one host, where none is needed. Raises ConfigError."""
    if not hand.host or is_loopback(hand.host):
        return ""
    return shared_secret(f"{hand.host} is beyond this host, so the run needs a token")


def shared_secret(why: str) -> str:
    """What is in the file that PACELINE_TOKEN_FILE names. Raises ConfigError, without one with `why` it is needed."""
    path = os.environ.get(TOKEN)
    if not path:
        raise ConfigError(f"{why}: {HOW}")
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
        found = os.stat(path)
        # A Secret of Kubernetes is root's, for the group that the pod has to itself.
        open_to_others = found.st_mode & (0o077 if found.st_uid == os.getuid() else 0o007)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{TOKEN}={path}: {getattr(error, 'strerror', None) or 'is no text'}; {HOW}") from None
    if open_to_others:
        raise ConfigError(f"{TOKEN}={path} can be read by others: give it mode 0600")
    if len(text) < TOKEN_CHARACTERS_MIN:
        raise ConfigError(f"{TOKEN}={path}: {len(text)} characters can be guessed; {HOW}")
    return text


def with_job(hand: Hand) -> Hand:
    """MPICH and Intel MPI tell no name of the job: here it is that of their proxy on this host.

    The proxy is the first ancestor that has no rank itself; a shell between them has one.
    """
    if hand.starter != "mpich":
        return hand
    proxy = os.getppid()
    with contextlib.suppress(OSError):  # another user's
        while b"PMI_RANK=" in Path(f"/proc/{proxy}/environ").read_bytes():
            proxy = int(fields_of(proxy)[1])
    return dataclasses.replace(hand, job=f"{hand.job}-{proxy}")


def _ticket(hand: Hand) -> Path:
    """In a folder that nobody else can enter. Raises ConfigError."""
    folder = Path(tempfile.gettempdir(), f"paceline-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"{folder} is not a folder of yours alone: remove it, or set TMPDIR to one that is")
    name = "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in hand.job)
    return folder / f"{name}.ticket"


# ---- the lives of processes ----------------------------------------------------------------------------------
def find_place() -> Place | None:
    """For a script: its place, if somebody has started it in a row with others.

    Rank 0 starts who leads first. The scheduler and servers of MXNet's manual starts do their part here, and end.
    """
    hand = by_hand(os.environ)
    if hand is None:
        return None
    hand = with_job(hand)
    if hand.kind == SCHEDULER:
        sys.exit(led(hand, {}, trains=False))
    place = come(hand, start_leader(hand, {}, trains=False) if hand.leads else None)
    if place.seat.who.kind == "server":
        sys.exit(take_part(place))
    return place


def take_part(place: Place) -> int:
    """A party of Paceline's own, to its end; the exit code."""
    from paceline.job import party

    code = party.main(configuration.build(place.config), place.seat)
    if code == 0:
        place.leave()
    return code


def start_leader(hand: Hand, values: Mapping[str, Any], *, trains: bool) -> subprocess.Popen[bytes]:
    """A process beside rank 0, which waits for it at its own end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.launch.byhand"], stdin=subprocess.PIPE, preexec_fn=die_with_parent
    )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(msgspec.json.encode({"hand": hand, "values": values, "trains": trains}))
    atexit.register(_wait_for, process)
    return process


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    """It has some things to write when the last worker has left."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LAST_SECONDS)


def led(hand: Hand, values: Mapping[str, Any], *, trains: bool) -> int:
    """`lead`, for a process of its own: ends in order at SIGTERM and SIGINT."""

    def run(conductor: Any, out: str) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda got, _frame: conductor.interrupt(signal.Signals(got).name))
        summary = conductor.run()
        steps = ", ".join(f"{worker.rank}: {worker.steps}" for worker in summary.workers)
        print(f"{summary.scheme}: {summary.seconds:.1f} s, {summary.samples} samples; steps by worker: {steps}")
        print(f"left in {out}: config.toml trace.jsonl summary.json", flush=True)
        return 0

    try:
        return lead(hand, values, trains=trains, run=run, view=make_view(sys.stderr) if trains else Silent())
    except PacelineError as error:
        print(f"paceline: {error}", file=sys.stderr, flush=True)
        return 2 if isinstance(error, ConfigError) else 1


def _main() -> int:
    told = msgspec.json.decode(sys.stdin.buffer.read())
    return led(msgspec.convert(told["hand"], Hand), told["values"], trains=told["trains"])


if __name__ == "__main__":
    code = _main()
    sys.stdout.flush()
    os._exit(code)
