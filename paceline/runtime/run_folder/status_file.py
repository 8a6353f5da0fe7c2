"""How a run stands, told by itself: `status.json` in its folder, for `paceline status`, `kill` and `logs`.

Written anew every second by the process that leads the run, all or nothing, and a last time when the run is over. A
process is told by its number, the boot of its machine and the tick at which it began: a number alone may be another
process's by now.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from paceline.core.errors import ConfigError
from paceline.core.safe_path import shown_path
from paceline.core.trace import Applied, Evaluated, MemberChange, Record
from paceline.live.host_info import boot_id
from paceline.live.party import EVALUATOR, Party
from paceline.live.protocol.control_messages import Hello, Progress
from paceline.runtime.run_folder.evaluation_times import EvaluationTimes
from paceline.runtime.run_folder.lock_file import LockFence
from paceline.runtime.run_folder.scale_up_signal import grows

STATUS = "status.json"
EVERY_SECONDS = 1.0
STARTING, FAILED, OVER = "starting", "failed", "over"
HIDDEN = "..."


class PartyStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """heard_s: seconds between the last that was heard of it and `Status.written`; doing: of the evaluator."""

    party: str
    host: str
    pid: int
    device: str = ""
    state: str = "joined"
    steps: int = 0
    incarnation: int = 0
    heard_s: float = 0.0
    doing: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """pid, born, host: the process that leads the run. `listens`: it ends the run in order at SIGTERM; `grows`: it
    starts one worker more at SIGUSR1.

    started, written: seconds since 1970 on that host. state: `starting`, a phase of the run, `failed` or `over`.
    """

    pid: int
    born: str
    host: str
    folder: str
    command: tuple[str, ...]
    listens: bool
    grows: bool = False
    started: float
    written: float
    scheme: str = ""
    state: str = STARTING
    reason: str = ""
    parties: tuple[PartyStatus, ...] = ()

    @property
    def ended(self) -> bool:
        """As it says itself."""
        return self.state in (FAILED, OVER)

    @property
    def here(self) -> bool:
        """Does the process that leads it run on this machine, and now?"""
        return bool(self.born) and born(self.pid) == self.born


def born(pid: int) -> str:
    """Which process bears this number now: the boot of this machine and the tick of its start; empty without one."""
    with contextlib.suppress(OSError):
        fields = fields_of(pid)
        if fields[0] not in "ZX":
            return f"{boot_id()} {fields[19]}"
    return ""


def fields_of(pid: int) -> list[str]:
    """Of /proc/PID/stat after the name, which may have anything in it: state, parent, ... Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def read_status(folder: str | os.PathLike[str]) -> Status:
    """Raises ConfigError where there is none."""
    path = Path(folder) / STATUS
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except FileNotFoundError:
        raise ConfigError(f"{folder}: no {STATUS}; not the folder of a run") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


class StatusFile:
    """Keeps `status.json` of the run in `folder`; told by the supervisor, from any thread."""

    def __init__(
        self,
        folder: Path,
        scheme: str,
        fence: LockFence | None = None,
        evaluations: EvaluationTimes | None = None,
    ) -> None:
        """`fence`: keeps it from writing once the folder is another run's. `evaluations`: None if nobody evaluates."""
        self._path, self._scheme = folder / STATUS, scheme
        self._fence, self._evaluations = fence, evaluations
        self._parties: dict[Party, PartyStatus] = {}
        self._heard: dict[Party, float] = {}
        self._lock = threading.Lock()
        self._started, self._due = time.time(), 0.0
        self._state, self._reason = STARTING, ""

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """From the beginning of the run to its end, whose cause is told."""
        self.write(self._state, at_once=True)
        try:
            yield
        except BaseException as error:
            self._reason = (str(error) or type(error).__name__).partition("\n")[0]
            self.write(FAILED, at_once=True)
            raise
        self.write(OVER, at_once=True)

    # ---- what it is told ---------------------------------------------------------------------------------
    def rename(self, scheme: str) -> None:
        """The scheme of the run is another one: a script has chosen it."""
        self._scheme = scheme

    def joined(self, who: Party, hello: Hello) -> None:
        device = hello.device if who.kind == "worker" else ""
        steps = self._parties[who].steps if who in self._parties else 0
        self._put(
            PartyStatus(
                party=str(who),
                host=hello.host,
                pid=hello.pid,
                device=device,
                steps=steps,
                incarnation=hello.incarnation,
            )
        )

    def progressed(self, who: Party, progress: Progress) -> None:
        self._change(who, steps=progress.steps)

    def recorded(self, record: Record) -> None:
        match record:
            case MemberChange(event=event) if event != "joined":
                self._change(Party.parse(record.party), state=event)
            case Applied(shard=shard):
                self._change(Party("server", shard))
            case Evaluated(accuracy=accuracy, seconds=seconds) if self._evaluations:
                self._evaluations.evaluated(time.monotonic(), accuracy, seconds)
                self._change(EVALUATOR)

    def finished(self, reason: str) -> None:
        self._reason = reason

    def _change(self, who: Party, **changes: object) -> None:
        if who in self._parties:
            self._put(msgspec.structs.replace(self._parties[who], **changes))

    def _put(self, party: PartyStatus) -> None:
        who = Party.parse(party.party)
        with self._lock:
            self._parties[who], self._heard[who] = party, time.monotonic()

    # ---- what it tells -----------------------------------------------------------------------------------
    def write(self, state: str, *, at_once: bool = False) -> None:
        """A disk that is full, or gone, is no reason to end a run: the file is old then."""
        now = time.monotonic()
        if now < self._due and not at_once and state == self._state:
            return
        self._due, self._state = now + EVERY_SECONDS, state
        if self._fence is not None and self._fence.why_not:
            return
        doing = self._evaluations.doing(now, state) if self._evaluations else ""
        with self._lock:
            parties = tuple(
                msgspec.structs.replace(
                    party,
                    heard_s=round(now - self._heard[who], 3),
                    doing=doing if who == EVALUATOR and party.state == "joined" else "",
                )
                for who, party in sorted(self._parties.items())
            )
        draft = self._path.with_name(f".{STATUS}.{os.getpid()}")
        with contextlib.suppress(OSError):
            try:
                draft.write_bytes(msgspec.json.encode(self._status(parties)) + b"\n")
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)

    def _status(self, parties: tuple[PartyStatus, ...]) -> Status:
        return Status(
            pid=os.getpid(),
            born=born(os.getpid()),
            host=socket.gethostname(),
            folder=shown_path(self._path.parent.resolve()),
            command=tuple(map(shown_path, shown(sys.argv))),
            listens=signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN, None),
            grows=grows(),
            started=self._started,
            written=time.time(),
            scheme=self._scheme,
            state=self._state,
            reason=self._reason,
            parties=parties,
        )


def shown(argv: Sequence[str]) -> tuple[str, ...]:
    """A command for everybody's eyes: without the values that `--env` gives."""
    words = ["paceline" if Path(argv[0]).name in ("__main__.py", "paceline") else argv[0]]
    for before, word in itertools.pairwise(argv):
        flag = "--env=" if word.startswith("--env=") else ""
        name, equals, _ = word.removeprefix(flag).partition("=")
        words.append(f"{flag}{name}={HIDDEN}" if equals and (flag or before == "--env") else word)
    return tuple(words)


@contextlib.contextmanager
def starting(folder: str, scheme: str) -> Iterator[None]:
    """While agents are waited for: the run can be seen and ended before it begins; nothing is left if it never does.

    What stood there before is there again then. A folder whose run goes on is left alone: it will not be claimed.
    """
    path = Path(folder)
    made = [parent for parent in (path, *path.parents) if not parent.exists()]
    path.mkdir(parents=True, exist_ok=True)
    before = _standing_there(path)
    try:  # from here on, since a signal may come as soon as the status can be seen
        if before is not None:
            StatusFile(path, scheme).write(STARTING, at_once=True)
        yield
    finally:
        with contextlib.suppress(ConfigError, OSError):  # a full disk, or somebody has put something else there
            left = read_status(path)
            if left.state == STARTING and left.pid == os.getpid():
                (path / STATUS).write_bytes(before) if before else (path / STATUS).unlink()
                for parent in made:
                    parent.rmdir()


def _standing_there(path: Path) -> bytes | None:
    """What is written there, if anything; None where another process goes on with that run."""
    try:
        there = (path / STATUS).read_bytes()
        status = read_status(path)
    except (ConfigError, OSError):
        return b""
    return None if status.here and not status.ended and status.pid != os.getpid() else there
