"""Commands that end, with every process that they started, when this one ends: also by a signal, or killed. Linux."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path
from typing import NoReturn

from paceline.launch.local.fork_server import die_with_parent

END_S = 30
"""Time in which `paceline launch` ends its processes in order after SIGTERM. It is killed then, and they with it."""


def end_on_signals() -> None:
    """Lets SIGTERM and SIGHUP end this process as Ctrl-C does, so that `finally` is met. `timeout` sends SIGTERM."""

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process in order, or else at once. What it prints meanwhile is read: a full pipe would hold it up."""
    for end in (process.terminate, process.kill):
        if process.poll() is None:
            end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=END_S)


def output_to_end(command: list[str], folder: Path, environment: dict[str, str], seconds_max: float) -> str:
    """Runs a command in `folder`, and returns what it prints.

    However this ends, the command has ended after it. The kernel kills the command where this process is killed;
    `paceline launch` takes its processes with it. Raises SystemExit if the command fails or needs more than
    `seconds_max`.
    """
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        printed, errors = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired as late:
        raise SystemExit(f"{' '.join(command)} in {folder}: has not ended within {seconds_max:g} s") from late
    finally:
        _end(process)
    if process.returncode:
        print(f"{printed}\n{errors}"[-2000:])
        raise SystemExit(f"{' '.join(command)} in {folder}: exit code {process.returncode}")
    return f"{errors}\n{printed}"
