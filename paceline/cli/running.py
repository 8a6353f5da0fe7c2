"""What `train` and `race` share: one run on this machine, with its signals, view and folder."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.job.conductor import Conductor
from paceline.launch.local import LocalHost
from paceline.live import party
from paceline.live.tcp import TcpTransport
from paceline.live.transport import Transport
from paceline.observe.progress import make_view
from paceline.observe.summary import Summary

EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}


class Interrupted(Exception):  # noqa: N818
    """A signal ended the run; `summary` is what there is of it, if anything."""

    def __init__(self, signal: str, summary: Summary | None) -> None:
        super().__init__(signal)
        self.exit_code = EXIT_CODES[signal]
        self.summary = summary


def new_folder(config: Config) -> Config:
    """`config` with its folder made: the one asked for, which must be empty, or a new one under runs/.

    Raises ConfigError when it cannot be used.
    """
    out = config.run.out
    if not out:
        stem = f"runs/{time.strftime('%Y%m%d-%H%M%S')}-{config.run.scheme}"
        out = next(name for name in _numbered(stem) if not Path(name).exists())
    path = Path(out)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if (path / "summary.json").exists() or (path / "race.json").exists():
            raise ConfigError(f"--out {out} already holds a run: name another folder")
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}") from None
    return dataclasses.replace(config, run=dataclasses.replace(config.run, out=str(path)))


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    for n in range(2, 1_000_000):
        yield f"{stem}-{n}"


def run_once(config: Config, host: LocalHost, stream: TextIO = sys.stderr) -> Summary:
    """One run. Raises RunFailed with the first cause, Interrupted after Ctrl-C or SIGTERM."""
    conductor = Conductor(config, _coordinator_transport, host.crew(), make_view(stream))
    with _signals(conductor.interrupt):
        try:
            summary = conductor.run()
        finally:
            if conductor.interrupted and not Path(config.run.out, "summary.json").exists():
                raise Interrupted(conductor.interrupted, None)
    if conductor.interrupted:
        raise Interrupted(conductor.interrupted, summary)
    return summary


def _coordinator_transport(token: str, failed: Callable[[BaseException], None]) -> Transport:
    return TcpTransport(party.COORDINATOR, token, _NoVectors(), failed=failed, body_bytes_max=0)


class _NoVectors:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the coordinator carries no vectors")


@contextmanager
def _signals(interrupt: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM go to `interrupt`."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda got, _frame: interrupt(signal.Signals(got).name)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
