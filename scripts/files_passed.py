"""Counts the files that four things pass on their way through the package: `python -m scripts.files_passed`.

    gradient     from `Pace.step` to a server and back as weights: files of which a function is handed the vector, the
                 message or the frame with it, under bsp over TCP
    setting      `--transport`, from the arguments of `paceline train` to the transport that it chooses: files of which
                 a function is handed the value, or calls one that is and holds the configuration meanwhile
    death        of a worker, until its next incarnation trains: files of which a function runs that did not run before
    checkpoint   from the moment it is due until it is on disk: the same

The last two leave out the files that every run needs, such as the node and its channel, through which they also pass.

One small run gives all four: two workers, a server and an evaluator as threads of this process, connected by TCP. A
profiler (`threading.setprofile`) sees each call. Files whose functions only compute on the way, such as a timer or a
counter of samples, are therefore not part of the first two. `__init__.py` and generated methods count for nothing.
What a setting passes on its way to another process is named by hand (`BY_HAND`).
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import paceline
from paceline.cli.commands.train import parse
from paceline.cli.support.options import config_of
from paceline.config import Config
from paceline.core.coordination.party import Party
from paceline.launch.local import train as local_train
from paceline.launch.local.train import Silent, make_supervisor
from paceline.live.net.inprocess_transport import Hub
from paceline.live.net.tcp_transport import TcpTransport
from paceline.runtime.process_main import on_device, take_part
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.thread_launcher import ThreadLauncher
from paceline.runtime.worker.pace import Pace

PACKAGE = Path(paceline.__file__).parent
BY_HAND = {
    "config/sections.py",  # declares it, without a function
    "launch/local/launcher.py",  # sends the specification to the fork server
    "launch/local/fork_messages.py",
    "launch/local/fork_server.py",
    "runtime/process_main.py",
}
"""What a setting passes besides: parties are processes there, and threads here."""
IN_THREADS = {"runtime/thread_launcher.py"}
"""What stands for the launcher of processes."""
GRADIENT = {"Flat", "Push", "Weights", "Computed"}
SETTING = {"Config", "ClusterSettings", "ProcessSpec"}
SPECIFIED = {f"ProcessSpec.{name}" for name in ("to_json", "from_json", "open_transport")}
VALUE = "tcp"
Call = tuple[str, str]
"""The file of a function, relative to the package, and the function's name."""


class Calls:
    """Notes calls of the package's functions, of all threads that begin after `install`.

    noted     all of them
    gradient  those that are handed a vector, a message of the scheme or its envelope, while `of_gradient` is set
    setting   those that are handed the setting's value, and those on the stack above them, or above a call that writes
              or reads the specification of a process, which hold the configuration or such a specification
    """

    def __init__(self) -> None:
        self.noted: set[Call] = set()
        self.gradient: set[Call] = set()
        self.setting: set[Call] = set()
        self.of_gradient = False
        self.left_out: set[str] = set()  # names of threads

    def install(self) -> None:
        """Begins to note calls, of this thread and of those that begin from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or threading.current_thread().name in self.left_out:
            return
        if frame.f_code.co_name == "__init__" and type(frame.f_locals.get("self")) is ProcessSpec:  # it is generated
            self.setting |= {above for above in stack_of(frame) if above is not None}
        if not (call := call_of(frame)):
            return
        self.noted.add(call)
        values = list(frame.f_locals.values())
        if self.of_gradient and any(map(carries_gradient, values)):
            self.gradient.add(call)
        chosen = any(type(value) is str and value == VALUE for value in values)
        if chosen:
            self.setting.add(call)
        if chosen or call[1] in SPECIFIED:
            self.setting |= {above for above in stack_of(frame) if above is not None}


def call_of(frame: FrameType) -> Call | None:
    """Returns the file and name of a frame's function, or None where it is not the package's or in an `__init__.py`."""
    code = frame.f_code
    if not code.co_filename.startswith(f"{PACKAGE}/") or code.co_filename.endswith("__init__.py"):
        return None
    return code.co_filename.removeprefix(f"{PACKAGE}/"), code.co_qualname


def carries_gradient(value: object) -> bool:
    """Says whether it is a vector, a message of the scheme, or the envelope of one."""
    return type(getattr(value, "message", value)).__name__ in GRADIENT


def stack_of(frame: FrameType) -> Iterator[Call | None]:
    """Yields the calls on the stack that hold a configuration or a process's specification."""
    above: FrameType | None = frame
    while above is not None:
        if any(type(value).__name__ in SETTING for value in list(above.f_locals.values())):
            yield call_of(above)
        above = above.f_back


class TcpThreads(ThreadLauncher):
    """Starts the parties as threads that are connected by TCP, each with a specification that travelled as JSON."""

    def __init__(self) -> None:
        super().__init__(Hub())
        self._transports: dict[str, TcpTransport] = {}

    def start(self, spec: ProcessSpec) -> None:
        spec = on_device(ProcessSpec.from_json(spec.to_json()))
        name = f"{spec.party} ({spec.incarnation})"

        def run() -> None:
            transport = self._transports[spec.party] = spec.open_transport()
            ended = take_part(spec, transport)
            if name in self._threads:
                self.ended.put(ended)

        self._threads[name] = threading.Thread(target=run, name=name, daemon=True)
        self._threads[name].start()

    def kill_now(self, party: str) -> None:
        """Closes all connections of a party and reports its end, as it looks when a process is killed.

        Its thread cannot be ended; it waits for replies until this process ends.
        """
        del self._threads[f"{party} (0)"]
        self._transports[party].close()
        self.ended.put(ProcessEnded(who=Party.parse(party), why="was killed by SIGKILL"))


def run(*options: str, at_step: Callable[[int, TcpThreads], None] = lambda step, threads: None) -> None:
    """Makes one run, whose folder is removed; `at_step` is called with the number of each step of worker 0."""
    steps = 0
    original = Pace.step
    threads = TcpThreads()

    def step(pace: Pace, *arguments: Any, **more: Any) -> None:
        nonlocal steps
        if threading.current_thread().name == "worker 0 (0)":
            steps += 1
            at_step(steps, threads)
        original(pace, *arguments, **more)

    Pace.step = step  # type: ignore[method-assign, assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = configured("--out", f"{folder}/run", *options)
            make_supervisor(config, threads, Silent()).run()
    finally:
        Pace.step = original  # type: ignore[method-assign]


def configured(*options: str) -> Config:
    """Returns the configuration of a run, as `paceline train` makes it of these options besides the common ones."""
    common = f"--scheme bsp --workers 2 --servers 1 --transport {VALUE} --step-ms 10 --epochs 0 --seconds 4"
    return local_train.new_folder(config_of(parse([*common.split(), *options])))


def files(calls: set[Call]) -> list[str]:
    """Returns the files of these calls, in order."""
    return sorted({path for path, _ in calls} - IN_THREADS)


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    torch.set_num_threads(1)
    calls = Calls()
    calls.install()

    def gradient(step: int, threads: TcpThreads) -> None:
        calls.of_gradient = 20 <= step < 40

    run("--checkpoint-every", "0", at_step=gradient)
    if not calls.gradient:
        raise SystemExit("the run ended before step 20, so it shows no gradient: try on a less busy machine")
    calls.of_gradient = False
    without = set(calls.noted)
    found = {"gradient": set(calls.gradient), "setting": set(calls.setting)}

    def kill(step: int, threads: TcpThreads) -> None:
        if step == 40:
            calls.left_out = {"worker 1 (0)"}
            threads.kill_now("worker 1")

    run("--checkpoint-every", "0", at_step=kill)
    found["death"] = calls.noted - without
    calls.left_out = set()
    calls.noted.clear()
    run("--checkpoint-every", "1")
    found["checkpoint"] = calls.noted - without - found["death"]
    found["setting"] |= {(path, "by hand") for path in BY_HAND}
    for name, handed in found.items():
        print(f"{name}: {len(files(handed))} files")
        for path in files(handed):
            print(f"    {path:44}" + ", ".join(sorted({f.rpartition(".")[2] for p, f in handed if p == path})))
    sys.setprofile(None)
    threading.setprofile(None)


if __name__ == "__main__":
    main()
