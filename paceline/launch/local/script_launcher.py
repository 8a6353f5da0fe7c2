"""Launches a run whose workers are somebody's own training script; the servers are forks of Paceline's own process."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.config import Config
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.core.files.helper_command import helper_command
from paceline.launch.local.environment import PREFIX, PROCESS, Environment, environment_of
from paceline.launch.local.fork_server import die_with_parent
from paceline.launch.local.interfaces import for_nccl
from paceline.launch.local.launcher import LocalLauncher
from paceline.launch.local.rank_processes import LOOPBACK, free_port, variables_of_group
from paceline.runtime.spec.core_binding import bind, check_host, part_of
from paceline.runtime.spec.devices import all_workers, check_without_gpus, gpus_of_ranks
from paceline.runtime.spec.launcher import OTHER_VERSION_EXIT, ProcessEnded, how_ended
from paceline.runtime.spec.process_spec import ProcessSpec

CUDA_VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees."""
RANK_PROCESSES = "paceline.launch.local.rank_processes"
"""The program that starts the ranks of a worker."""
LAST_LINES_SECONDS = 1.0
"""Seconds that are waited for the last lines of a process that has ended."""
TOLD_SECONDS = 1.0
"""Seconds in which a lost worker of several ranks may end by itself, and say which rank was the first to end."""


class ScriptLauncher:
    """Starts `command` once for each worker, with its place in the environment; what it prints is passed on line by
    line."""

    def __init__(
        self,
        command: Sequence[str],
        servers: LocalLauncher,
        said: Callable[[str, str], None],
        environment: Environment | None = None,
    ) -> None:
        """`said` is called with party and line; `environment` has further variables for workers."""
        self._command, self._servers, self._said = list(command), servers, said
        self._environment = dict((environment or {}).get("worker", {}))
        self.ended = servers.ended  # one queue for both, so that the first cause comes first
        self._processes: dict[str, subprocess.Popen[str]] = {}  # whose end has not been told
        self._in_ranks: set[str] = set()  # workers of several ranks
        self._threads: list[threading.Thread] = []
        self._ending = False
        self._group_port = 0  # where the workers' own group meets, once one is started

    def prepare(self, config: Config) -> int:
        """Returns 1: the data are the script's own affair. So are its devices, where its Python is another one than
        this.

        Raises ConfigError on Windows: a script and all that it starts are ended as a process group, which it lacks.
        """
        if not hasattr(os, "killpg"):
            raise ConfigError("paceline launch needs process groups, which Windows lacks: use WSL, or start one worker")
        check_host(config, range(config.cluster.workers))
        if self._is_of_this_python():
            check_without_gpus(config, all_workers(config))
        return 1

    def _is_of_this_python(self) -> bool:
        """Returns True if the command's program lies beside this interpreter, so that it has this torch."""
        program = shutil.which(self._command[0], path=programs_path())
        return program is not None and Path(program).parent == Path(sys.executable).parent

    def start(self, spec: ProcessSpec) -> None:
        """Starts a worker or evaluator as a process of the script; servers are forked.

        A script finds its place in its environment. Threads of arithmetic are limited there: scripts on one machine
        would each start one for each core. Raises ConfigError where the command cannot be executed.
        """
        if spec.who.kind == "server":
            self._servers.start(spec)
            return
        # Scripts on one machine would each start a thread a core, and those spin for one another's work.
        ours = {"OMP_NUM_THREADS": str(spec.config.cluster.threads), **for_nccl(spec.bind, os.environ)}
        ours["PYTHONUNBUFFERED"] = "1"  # what a script prints is shown when it prints it
        inherited = {**ours, **os.environ, "PATH": programs_path()}
        environment = {**inherited, **self._environment, **environment_of(spec, _token_file(spec))}
        environment |= self._place_in_group(spec)
        if spec.who.kind == "evaluator":
            environment[PROCESS] = str(_process_file(spec))
        worker, part = spec.who.kind == "worker", part_of(spec)
        command, of_ranks = _of_several_ranks(spec, self._command)
        environment |= of_ranks
        if of_ranks:
            self._in_ranks.add(spec.party)
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=functools.partial(_become_worker, part) if worker else _beside_training,
            )
        except OSError as error:
            raise ConfigError(f"{self._command[0]}: {error.strerror}") from None
        self._processes[spec.party] = process
        thread = threading.Thread(target=self._follow, args=(spec, process), name=spec.party, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _place_in_group(self, spec: ProcessSpec) -> dict[str, str]:
        """Returns the variables of `--torch-distributed`, if it is given.

        The evaluator is no worker, and the workers do not wait for it: it is a group of its own.
        """
        where = spec.config.cluster.torch_distributed
        if where == "none":
            return {}
        if spec.who.kind == "evaluator":
            return variables_of_group(0, 1, (0, 1), (LOOPBACK, free_port()))
        if where == "auto":
            self._group_port = self._group_port or free_port()
            where = f"{LOOPBACK}:{self._group_port}"
        host, _, port = where.rpartition(":")
        on_host = (max(spec.slot, 0), len(spec.neighbours)) if spec.neighbours else (spec.who.index, spec.workers)
        return variables_of_group(spec.who.index, spec.workers, on_host, (host, int(port)))

    def _follow(self, spec: ProcessSpec, process: subprocess.Popen[str]) -> None:
        """Tell how it ended, and leave nothing of it: children of its own may hold its output open for ever."""
        last: deque[str] = deque(maxlen=1)
        reader = threading.Thread(target=self._pass_on, args=(spec.party, process, last), daemon=True)
        reader.start()
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # until it is reaped its group is no other's
        else:
            process.wait()
        reader.join(LAST_LINES_SECONDS)
        _kill_group(process, signal.SIGKILL)
        reader.join(LAST_LINES_SECONDS)
        code = process.wait()
        why = ""
        if code and not self._ending:
            why = f"{spec.party} (pid {process.pid}) {how_ended(code)}" + "".join(f": {line}" for line in last)
        if self._processes.get(spec.party) is process:
            del self._processes[spec.party]
        self.ended.put(ProcessEnded(who=spec.who, why=why, other_version=code == OTHER_VERSION_EXIT))

    def _pass_on(self, party: str, process: subprocess.Popen[str], last: deque[str]) -> None:
        """Passes on what the process prints; `last` gets the last line that is not empty."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._said(party, line.removesuffix("\n"))
                if line.strip():
                    last.append(line.strip())

    def waits(self, who: Party) -> bool:
        """Returns False: who is started here begins at once."""
        return False

    def busy(self) -> bool:
        """Returns True while a script runs, or its end has not been handled."""
        return any(thread.is_alive() for thread in self._threads) or not self.ended.empty()

    def kill(self, who: Party) -> None:
        """Kills the script of a worker with all processes it has started, one of several ranks after TOLD_SECONDS; or
        the process of a server."""
        if who.kind == "server":
            self._servers.kill(who)
        elif str(who) in self._in_ranks:
            later = threading.Timer(TOLD_SECONDS, self._kill, (str(who), self._processes.get(str(who))))
            later.daemon = True
            later.start()
        else:
            self._kill(str(who), self._processes.get(str(who)))

    def _kill(self, who: str, process: subprocess.Popen[str] | None) -> None:
        """Kills that process of a worker, unless it has ended."""
        if process and self._processes.get(who) is process:
            _kill_group(process, signal.SIGKILL)

    def end(self, seconds: float) -> None:
        """Ends all scripts: a part of the time they may end by themselves, then they get SIGTERM, and then SIGKILL."""
        deadline = time.monotonic() + seconds
        while self._processes and time.monotonic() < deadline - seconds * 0.75:
            self._join(deadline - seconds * 0.75)
        self._ending = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in list(self._processes.values()):
                _kill_group(process, number)
            self._join(deadline)
            deadline = time.monotonic() + seconds
        self._servers.end(seconds)

    def _join(self, deadline: float) -> None:
        """Waits until the threads that follow the processes have ended, up to `deadline`."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _of_several_ranks(spec: ProcessSpec, command: list[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the command of a worker, which starts it once for each of its ranks, and further variables.

    An evaluator has the ranks and GPUs of worker 0.
    """
    config, rank = spec.config, spec.who.index if spec.who.kind == "worker" else 0
    count = config.ranks_of(rank)
    if count == 1:
        return command, {}
    first = sum(map(config.ranks_of, range(rank))) if spec.slot < 0 else spec.slot * count
    gpus = gpus_of_ranks(config.device_of(rank), first, count, os.environ.get(CUDA_VISIBLE))
    found = {} if gpus is None else {CUDA_VISIBLE: gpus}
    return helper_command(RANK_PROCESSES, str(count), *command), {**found, PREFIX + "DEVICE": "auto"}


def programs_path() -> str:
    """PATH with the folder of this interpreter first, so that `python` has Paceline, activated or not."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _kill_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signals a script's whole process group: launchers like `bash` or `torchrun` start further processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _become_worker(part: frozenset[int]) -> None:
    """Runs in a worker's process, before the script: it is bound to the CPUs of its `part`."""
    die_with_parent()
    bind(part)


def _beside_training() -> None:
    """Runs in the evaluator's process: training comes first on a machine with few cores."""
    die_with_parent()
    os.nice(5)


def _process_file(spec: ProcessSpec) -> Path:
    """Writes the spec of a process that is no worker, for its owner only, since it has the token in it."""
    path = Path(spec.folder) / f"{spec.party}-{spec.incarnation}.json"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(spec.to_json())
    return path


def _token_file(spec: ProcessSpec) -> Path:
    """Writes the token to a file for its owner only; it is never in arguments or the environment."""
    path = Path(spec.folder) / "token"
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(spec.token)
    return path
