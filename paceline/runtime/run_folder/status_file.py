"""Keeps `status.json` in a run's folder, for `paceline status`, `kill` and `logs`.

The process that leads the run writes it anew every second, all or nothing, and a last time when the run is over. The
process is identified by its PID, the boot of its machine and the tick at which it began, because a PID alone may be
another process's by now.
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

from paceline.core.coordination.control_messages import Hello, Progress
from paceline.core.coordination.party import EVALUATOR, Party
from paceline.core.errors import ConfigError
from paceline.core.files.regular_file import read_regular
from paceline.core.files.safe_path import shown_path
from paceline.core.trace import Applied, Evaluated, MemberChange, Record
from paceline.live.host_info import boot_id
from paceline.runtime.run_folder.evaluation_times import EvaluationTimes
from paceline.runtime.run_folder.lock_file import LockFence
from paceline.runtime.run_folder.scale_up_signal import grows

STATUS = "status.json"
"""The file, in the run's folder."""
EVERY_SECONDS = 1.0
"""Seconds between two versions of the file."""
STARTING, FAILED, OVER = "starting", "failed", "over"
"""States beside the phases of a run: before the coordinator exists, and after it."""
HIDDEN = "..."
"""Stands for the value of an environment variable, which may be a secret."""


class PartyStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes one party.

    heard_s  seconds between its last message and `Status.written`
    doing    what the evaluator does
    state    joined, or its last membership event
    """

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
    """Describes a run.

    pid, born, host   the process that leads the run, when it began, and its host
    listens           it ends the run in order at SIGTERM
    grows             it starts one worker more at SIGUSR1
    started, written  seconds since 1970 on that host
    state             `starting`, a phase of the run, `failed` or `over`
    reason            why it ended, in one line
    train_samples     samples of an epoch; 0 where nobody knows, as of a script's own data
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
    train_samples: int = 0
    parties: tuple[PartyStatus, ...] = ()

    @property
    def ended(self) -> bool:
        """Returns True if the run says itself that it is over. A run that was killed says nothing: see `here`."""
        return self.state in (FAILED, OVER)

    @property
    def here(self) -> bool:
        """Returns True if the process that leads the run runs on this machine now."""
        return bool(self.born) and born(self.pid) == self.born


def born(pid: int) -> str:
    """Returns what identifies the process with this PID: boot of this machine and tick of its start; "" without one."""
    with contextlib.suppress(OSError):
        fields = fields_of(pid)
        # A zombie has ended; its parent has not asked yet.
        if fields[0] not in "ZX":
            return f"{boot_id()} {fields[19]}"
    return ""


def fields_of(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name, which may contain anything: state, parent, ... Raises
    OSError."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def read_status(folder: str | os.PathLike[str]) -> Status:
    """Returns the status of the run in `folder`. Raises ConfigError where there is none, or none that can be read."""
    path = Path(folder) / STATUS
    try:
        return msgspec.json.decode(read_regular(path), type=Status)
    except FileNotFoundError:
        raise ConfigError(f"{folder}: no {STATUS}; not the folder of a run") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


class StatusFile:
    """Keeps `status.json` of the run in `folder`. The supervisor's and the coordinator's threads call it."""

    def __init__(
        self,
        folder: Path,
        scheme: str,
        fence: LockFence | None = None,
        evaluations: EvaluationTimes | None = None,
        train_samples: int = 0,
    ) -> None:
        """`fence`: keeps it from writing once the folder is another run's. `evaluations`: None if nobody evaluates."""
        self._train_samples = train_samples
        self._path, self._scheme = folder / STATUS, scheme
        self._fence, self._evaluations = fence, evaluations
        self._parties: dict[Party, PartyStatus] = {}
        self._heard: dict[Party, float] = {}
        self._lock = threading.Lock()
        self._started, self._due = time.time(), 0.0
        self._state, self._reason = STARTING, ""

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Writes the file from the beginning of the run to its end; an exception makes the state `failed`, with its
        first line."""
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
        """Changes the scheme: a script has chosen another one."""
        self._scheme = scheme

    def joined(self, who: Party, hello: Hello) -> None:
        """Notes that a party has joined, or its next incarnation has."""
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
        """Notes a worker's steps, and that it was heard of."""
        self._change(who, steps=progress.steps)

    def recorded(self, record: Record) -> None:
        """Notes that a party was heard of, and what became of it."""
        match record:
            case MemberChange(event=event) if event != "joined":
                self._change(Party.parse(record.party), state=event)
            case Applied(shard=shard):
                self._change(Party("server", shard))
            case Evaluated(accuracy=accuracy, seconds=seconds) if self._evaluations:
                self._evaluations.evaluated(time.monotonic(), accuracy, seconds)
                self._change(EVALUATOR)

    def finished(self, reason: str) -> None:
        """Notes why the run ended."""
        self._reason = reason

    def _change(self, who: Party, **changes: object) -> None:
        """Changes fields of a party that is known."""
        if who in self._parties:
            self._put(msgspec.structs.replace(self._parties[who], **changes))

    def _put(self, party: PartyStatus) -> None:
        """Enters a party as it is now, and notes when it was heard."""
        who = Party.parse(party.party)
        with self._lock:
            self._parties[who], self._heard[who] = party, time.monotonic()

    # ---- what it tells -----------------------------------------------------------------------------------
    def write(self, state: str, *, at_once: bool = False) -> None:
        """Writes the file, at most once a second unless the state changes or `at_once`.

        A disk that is full or gone is no reason to end a run: then the file stays old, which its `written` shows.
        """
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
                # No group may write it, whatever the umask: it names the process that `paceline kill` ends.
                with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "wb") as file:
                    file.write(msgspec.json.encode(self._status(parties)) + b"\n")
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)

    def _status(self, parties: tuple[PartyStatus, ...]) -> Status:
        """Returns what the next version of the file says."""
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
            train_samples=self._train_samples,
            parties=parties,
        )


def shown(argv: Sequence[str]) -> tuple[str, ...]:
    """Returns a command for everybody's eyes: without the values of environment variables that `--env` sets."""
    words = ["paceline" if Path(argv[0]).name in ("__main__.py", "paceline") else argv[0]]
    for before, word in itertools.pairwise(argv):
        flag = "--env=" if word.startswith("--env=") else ""
        name, equals, _ = word.removeprefix(flag).partition("=")
        words.append(f"{flag}{name}={HIDDEN}" if equals and (flag or before == "--env") else word)
    return tuple(words)


@contextlib.contextmanager
def starting(folder: str, scheme: str) -> Iterator[None]:
    """Keeps a status while agents are waited for, so that the run can be seen and ended before it begins.

    If it never begins, the folder is left as it was. A folder whose run goes on is not touched.
    """
    path = Path(folder)
    made = [parent for parent in (path, *path.parents) if not parent.exists()]
    path.mkdir(mode=0o755, parents=True, exist_ok=True)  # a group that can write here could replace the status
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
    """Returns the status that is there, b"" for none; None where another process leads that run now."""
    try:
        there = read_regular(path / STATUS)
        status = read_status(path)
    except (ConfigError, OSError):
        return b""
    return None if status.here and not status.ended and status.pid != os.getpid() else there
