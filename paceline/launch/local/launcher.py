"""The local launcher forks the processes of a run on this machine from one warm process."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal as signals
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline import config as configuration
from paceline.config import Config
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.safe_path import safe_join
from paceline.engine.data.remote import TIMEOUT_S, is_remote
from paceline.launch.local.environment import Environment
from paceline.launch.local.interfaces import for_nccl
from paceline.live.party import Party
from paceline.runtime.spec.devices import Placed, all_workers, check_devices, check_without_gpus, depend_on_gpus
from paceline.runtime.spec.launcher import ProcessEnded, how_ended

if TYPE_CHECKING:
    from paceline.runtime.spec.process_spec import ProcessSpec

PREPARE_SECONDS = 120.0
COMPILE_SECONDS = 780.0  # more, for codecs: they are compiled once on a machine, and on a busy one that takes minutes


def prepare_seconds(config: Config) -> float:
    """How long a host may take to get ready for this run."""
    fetching = TIMEOUT_S if is_remote(config.data.directory) else 0.0
    return PREPARE_SECONDS + fetching + (COMPILE_SECONDS if config.codecs().any else 0.0)


class LocalHost:
    """Owns the fork server; serves one run after the other, such as those of a race."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paceline.launch.local.fork_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._launcher: LocalLauncher | None = None
        self._has_started = False
        self._reader = threading.Thread(target=self._read, name="fork server", daemon=True)
        self._reader.start()

    def launcher(self, environment: Environment | None = None, *, warm: bool = True) -> LocalLauncher:
        """For the next run; `environment` is what parties of a kind find in theirs.

        warm: import torch for them right away, which takes seconds, beside what the caller does until it `prepare`s.
        """
        self._launcher = LocalLauncher(self, environment or {})
        if warm:
            self.ask(do="warm")
        return self._launcher

    def ask(self, **request: Any) -> None:
        """`do` one thing. Raises PacelineError where nobody is left to do it."""
        self._has_started |= request["do"] == "start"
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise PacelineError(f"the process that starts the others is gone ({error})") from None

    def answer(self, seconds: float) -> dict[str, Any]:
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            raise PacelineError(f"waited {seconds:.0f} s for the process that starts the others") from None

    def close(self) -> None:
        """Ends the fork server and whoever it still has."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self._has_started:
            self._process.kill()  # it may be in the middle of an import
        self._reader.join(2.0)
        self._socket.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        with self._socket.makefile("r", encoding="utf-8") as lines, contextlib.suppress(OSError):
            for line in lines:
                event = json.loads(line)
                if event["event"] in ("started", "ended") and self._launcher is not None:
                    self._launcher.heard(event)
                else:
                    self._answers.put(event)
        self._answers.put({"event": "error", "why": "the process that starts the others has ended"})


class LocalLauncher:
    """This launcher has the processes of one run."""

    def __init__(self, host: LocalHost, environment: Environment) -> None:
        self.ended: queue.SimpleQueue[ProcessEnded] = queue.SimpleQueue()
        self._host, self._environment = host, environment
        self._pids: dict[str, int] = {}
        self._alive: set[str] = set()
        self._logs: dict[str, Path] = {}
        self._change = threading.Condition()
        self._ending = False

    def prepare(self, config: Config, workers: Sequence[Placed] | None = None) -> int:
        """Load the data. `workers` are those of this host, by default all; their devices are looked for.

        Returns the number of training samples. Raises ConfigError.
        """
        if workers is None:
            workers = all_workers(config)
        check_without_gpus(config, workers)
        gpus = depend_on_gpus(config, workers)
        self._host.ask(do="prepare", config=configuration.to_dict(config), gpus=gpus)
        answer = self._host.answer(prepare_seconds(config))
        if answer["event"] == "error":
            raise ConfigError(answer["why"])
        if gpus:
            check_devices(config, workers, int(answer["gpus"]))
        return int(answer["train_samples"])

    def start(self, config: Config, spec: ProcessSpec) -> None:
        log = safe_join(config.run.out, "logs", f"{spec.party.replace(' ', '-')}.log")
        with self._change:
            self._alive.add(spec.party)
            self._logs[spec.party] = log
        self._host.ask(
            do="start",
            config=configuration.to_dict(config),
            spec=spec.to_json(),
            party=spec.party,
            log=str(log),
            environment={**for_nccl(spec.bind, os.environ), **self._environment.get(spec.who.kind, {})},
        )

    def heard(self, event: dict[str, Any]) -> None:
        """Handles an event, on the reader's thread."""
        party = event["party"]
        with self._change:
            if event["event"] == "started":
                self._pids[party] = event["pid"]
                return
            self._alive.discard(party)
            self._change.notify_all()
        why = "" if self._ending else death(party, event["pid"], event["code"], self._logs[party])
        self.ended.put(ProcessEnded(who=Party.parse(party), why=why))

    def busy(self) -> bool:
        return False

    def kill(self, who: Party) -> None:
        self.signal(who, signals.SIGKILL)

    def signal(self, who: Party, number: signals.Signals) -> None:
        """To its present process, if there is one."""
        if str(who) in self._alive:
            self._signal(str(who), number)

    def _signal(self, party: str, number: signals.Signals) -> None:
        self._host.ask(do="signal", pid=self._pids.get(party, 0), number=int(number))

    def end(self, seconds: float) -> None:
        if self._wait(0.2):
            return  # they all have ended by themselves
        self._ending = True
        for party in sorted(self._alive):
            self._signal(party, signals.SIGKILL)
        self._wait(seconds + 2.0)

    def _wait(self, seconds: float) -> bool:
        """Until nobody is left, for so long at most."""
        deadline = time.monotonic() + seconds
        with self._change:
            return self._change.wait_for(lambda: not self._alive, max(0.0, deadline - time.monotonic()))


def death(party: str, pid: int, code: int, log: Path) -> str:
    """Returns what an exit code says, with the last words in the log; the text is empty for 0."""
    if code == 0:
        return ""
    return f"{party} (pid {pid}) {how_ended(code)}{last_words(log) if code > 0 else ''}"


def last_words(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f": {lines[-1].strip()} (log: {log})" if lines else f" (log: {log})"
