"""Launches the processes of a run on this machine, as forks of one warm process.

    thread           what it does
    main thread      prepare, start, kill, end: writes requests to the fork server
    `fork server`    reads its answers: fills `ended`, and wakes who waits for the data

A party's process is known from its Forked to its ForkEnded. A signal for one that has ended meanwhile is ignored by the
fork server, which is the parent and so the only one that frees the PID.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal as signals
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline import config as configuration
from paceline.config import Config
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.safe_path import safe_join
from paceline.engine.data.remote import TIMEOUT_S, is_remote
from paceline.launch.local.environment import Environment
from paceline.launch.local.fork_messages import (
    DataLoaded,
    Fork,
    ForkAnswer,
    Forked,
    ForkEnded,
    ForkRequest,
    ImportTorch,
    LoadData,
    LoadFailed,
    SendSignal,
)
from paceline.launch.local.fork_server_process import ForkServerProcess
from paceline.launch.local.interfaces import for_nccl
from paceline.launch.local.line_messages import LineDecoder, encode
from paceline.runtime.spec.core_binding import check_host
from paceline.runtime.spec.devices import Placed, all_workers, check_devices, check_without_gpus, depend_on_gpus
from paceline.runtime.spec.launcher import LOST_COORDINATOR_EXIT, OTHER_VERSION_EXIT, ProcessEnded, how_ended

if TYPE_CHECKING:
    from paceline.runtime.spec.process_spec import ProcessSpec

PREPARE_SECONDS = 120.0
"""Seconds for imports and data, on a busy machine."""
COMPILE_SECONDS = 780.0  # more, for codecs: they are compiled once on a machine, and on a busy one that takes minutes


def prepare_seconds(config: Config) -> float:
    """Returns how many seconds a host may take to get ready for this run."""
    fetching = TIMEOUT_S if is_remote(config.data.directory) else 0.0
    return PREPARE_SECONDS + fetching + (COMPILE_SECONDS if config.codecs().any else 0.0)


class LocalHost:
    """Owns the fork server; serves one run after the other, such as those of a race."""

    def __init__(self, process: ForkServerProcess | None = None) -> None:
        """`process`: a fork server that was started already, and is closed with this."""
        self._process = process or ForkServerProcess()
        self._socket = self._process.socket
        self._answers: queue.SimpleQueue[DataLoaded | LoadFailed] = queue.SimpleQueue()
        self._launcher: LocalLauncher | None = None
        self._has_started = False
        self._reader = threading.Thread(target=self._read, name="fork server", daemon=True)
        self._reader.start()

    def launcher(self, environment: Environment | None = None, *, warm: bool = True) -> LocalLauncher:
        """Returns the launcher of the next run; `environment`: further variables by kind of party.

        warm: import torch for them right away, which takes seconds, beside what the caller does until it calls
        `prepare`.
        """
        self._launcher = LocalLauncher(self, environment or {})
        if warm:
            self.ask(ImportTorch())
        return self._launcher

    def ask(self, request: ForkRequest) -> None:
        """Sends a request. Raises PacelineError where the fork server is gone."""
        self._has_started |= isinstance(request, Fork)
        try:
            self._socket.sendall(encode(request))
        except OSError as error:
            raise PacelineError(f"the process that starts the others is gone ({error})") from None

    def answer(self, seconds: float) -> DataLoaded | LoadFailed:
        """Returns the answer to LoadData. Raises PacelineError after so many seconds."""
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            raise PacelineError(f"waited {seconds:.0f} s for the process that starts the others") from None

    def close(self) -> None:
        """Ends the fork server and all processes it still has."""
        self._process.disconnect(kill=not self._has_started)
        self._reader.join(2.0)
        self._process.close()

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        """Is the main function of the thread that hears the fork server, until its socket closes."""
        answers: LineDecoder[ForkAnswer] = LineDecoder(ForkAnswer)
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 16):
                answers.feed(data)
                while answers.has_message:
                    self._heard(answers.take())
        self._answers.put(LoadFailed(why="the process that starts the others has ended"))

    def _heard(self, answer: ForkAnswer) -> None:
        """Passes an answer on: about the data to who waits for it, about a process to the launcher of the run."""
        if isinstance(answer, DataLoaded | LoadFailed):
            self._answers.put(answer)
        elif self._launcher is not None:
            self._launcher.heard(answer)


class LocalLauncher:
    """Launches the processes of one run through the fork server."""

    def __init__(self, host: LocalHost, environment: Environment) -> None:
        self.ended: queue.SimpleQueue[ProcessEnded] = queue.SimpleQueue()
        self._host, self._environment = host, environment
        self._pids: dict[str, int] = {}
        self._alive: set[str] = set()
        self._logs: dict[str, Path] = {}
        self._change = threading.Condition()
        self._ending = False

    def prepare(self, config: Config, workers: Sequence[Placed] | None = None) -> int:
        """Loads the data, and looks for the devices of `workers`, those of this host (by default all).

        Returns the number of training samples. Raises ConfigError.
        """
        if workers is None:
            workers = all_workers(config)
        check_without_gpus(config, workers)
        check_host(config, [rank for rank, _ in workers])
        gpus = depend_on_gpus(config, workers)
        self._host.ask(LoadData(config=configuration.to_dict(config), count_gpus=gpus))
        answer = self._host.answer(prepare_seconds(config))
        if isinstance(answer, LoadFailed):
            raise ConfigError(answer.why)
        if gpus:
            check_devices(config, workers, answer.gpus)
        return answer.train_samples

    def start(self, spec: ProcessSpec) -> None:
        """Asks for the process of one party, which prints to its own log."""
        log = safe_join(spec.config.run.out, "logs", f"{spec.party.replace(' ', '-')}.log")
        with self._change:
            self._alive.add(spec.party)
            self._logs[spec.party] = log
        environment = {**for_nccl(spec.bind, os.environ), **self._environment.get(spec.who.kind, {})}
        self._host.ask(Fork(spec=spec.to_json(), party=spec.party, log=str(log), environment=environment))

    def heard(self, event: Forked | ForkEnded) -> None:
        """Handles what the fork server reports, on the reader's thread."""
        party = event.party
        with self._change:
            if isinstance(event, Forked):
                self._pids[party] = event.pid
                return
            self._alive.discard(party)
            self._change.notify_all()
        why = "" if self._ending else death(party, event.pid, event.code, self._logs[party])
        lost, other = event.code == LOST_COORDINATOR_EXIT, event.code == OTHER_VERSION_EXIT
        who = Party.parse(party)
        self.ended.put(ProcessEnded(who=who, why=why, lost_coordinator=lost, other_version=other))

    def waits(self, who: Party) -> bool:
        """Returns False: who is started here begins at once."""
        return False

    def busy(self) -> bool:
        """Returns False: nothing but the run's parties is started here."""
        return False

    def kill(self, who: Party) -> None:
        """Sends SIGKILL to the present process of `who`, if there is one."""
        self.signal(who, signals.SIGKILL)

    def signal(self, who: Party, number: signals.Signals) -> None:
        """Sends a signal to the present process of `who`, if there is one."""
        if str(who) in self._alive:
            self._signal(str(who), number)

    def _signal(self, party: str, number: signals.Signals) -> None:
        """Asks the fork server to send a signal; it is the parent, so no other process can have that PID."""
        self._host.ask(SendSignal(pid=self._pids.get(party, 0), number=int(number)))

    def end(self, seconds: float) -> None:
        """Waits a moment for processes to end by themselves, then kills the others."""
        if self._wait(0.2):
            return  # they all have ended by themselves
        self._ending = True
        for party in sorted(self._alive):
            self._signal(party, signals.SIGKILL)
        self._wait(seconds + 2.0)

    def _wait(self, seconds: float) -> bool:
        """Waits up to `seconds` until no process is left; returns True if none is."""
        deadline = time.monotonic() + seconds
        with self._change:
            return self._change.wait_for(lambda: not self._alive, max(0.0, deadline - time.monotonic()))


def death(party: str, pid: int, code: int, log: Path) -> str:
    """Returns what an exit code says, with the last words in the log; the text is empty for 0."""
    if code == 0:
        return ""
    return f"{party} (pid {pid}) {how_ended(code)}{last_words(log) if code > 0 else ''}"


def last_words(log: Path) -> str:
    """Returns the last line of a log, with the log's name; what a process printed last mostly says why it ended."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f": {lines[-1].strip()} (log: {log})" if lines else f" (log: {log})"
