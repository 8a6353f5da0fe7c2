"""Makes one run on this machine, from a configuration to a summary: `paceline.train`, and what commands share
with it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from paceline import config as configuration
from paceline.checkpoint.redis_url import StoreSecrets
from paceline.config import Config
from paceline.config.option_types import TrainOptions
from paceline.core.coordination import party
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.launch.local.launcher import LocalHost
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.progress import ProgressDisplay, ProgressSnapshot, make_display

if TYPE_CHECKING:
    from paceline.live.protocol.transport import Transport
    from paceline.observe.trace.hooks import Hook
    from paceline.runtime.spec.launcher import Launcher
    from paceline.runtime.supervisor.supervisor import RunSupervisor


class Silent:
    """Shows nothing of a run."""

    def begin(self, lines: Sequence[str]) -> None:
        """Ignores lines before the first snapshot."""

    def show(self, snapshot: ProgressSnapshot) -> None:
        """Ignores a snapshot."""

    def close(self) -> None:
        """Does nothing."""


def new_folder(config: Config, what: str = "") -> Config:
    """Returns `config` with a folder for the run: the one asked for, or a new one under runs/, named after `what`.

    `what` is the scheme by default. Raises ConfigError if the folder holds a run already, and is not to go on, or
    cannot be made.
    """
    if not config.run.out:
        out = next_folder(what or config.run.scheme)
        return dataclasses.replace(config, run=dataclasses.replace(config.run, out=out))
    out = config.run.out
    path = Path(out)
    if config.checkpoint.resume != "auto" and any(
        (path / name).exists() for name in ("trace.jsonl", "summary.json", "race.json")
    ):
        raise ConfigError(f"--out {out} already holds a run: name another folder")
    there = next((p for p in (path, *path.absolute().parents) if p.exists()), path)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {out}: {there} is not a folder one can write into")
    return dataclasses.replace(config, run=dataclasses.replace(config.run, out=str(path)))


_made: set[str] = set()
"""Folders that `next_folder` made in this process."""


@contextlib.contextmanager
def removing_unused(out: str) -> Iterator[None]:
    """Removes the folders that were made for a run, if the run is refused in the block and leaves nothing there."""
    path = Path(out)
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    if out in _made:
        made = [path, path.parent]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


def next_folder(what: str) -> str:
    """Makes a folder under runs/ that no other run has, even if it begins in the same second; returns its name.

    Raises ConfigError when it cannot be made.
    """
    for name in _numbered(f"runs/{time.strftime('%Y%m%d-%H%M%S')}-{what}"):
        try:
            Path(name).mkdir(mode=0o755, parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"{name}: {error.strerror}: name a folder that can be made with --out") from None
        _made.add(name)
        return name
    raise AssertionError("a million runs began in the same second")


def _numbered(stem: str) -> Iterator[str]:
    """Yields `stem`, then `stem-2`, `stem-3` and so on."""
    yield stem
    for n in range(2, 1_000_000):
        yield f"{stem}-{n}"


def make_supervisor(
    config: Config,
    launcher: Launcher,
    display: ProgressDisplay,
    *,
    evaluator: bool = True,
    script: bool = False,
    hooks: Sequence[Hook] = (),
    around: Callable[[Transport], Transport] = lambda transport: transport,
    accept_joins: bool = False,
) -> RunSupervisor:
    """Returns a supervisor for processes of this host. Raises ConfigError for a wrong option, before anything starts.

    evaluator     the run has an evaluator
    script        workers and evaluator are loops of one's own
    hooks         are called with each record, besides those of --hook
    around        may wrap the coordinator's transport
    accept_joins  workers come by themselves, also while training goes on
    """
    with removing_unused(config.run.out):
        return _make_supervisor(
            config,
            launcher,
            display,
            evaluator=evaluator,
            script=script,
            hooks=hooks,
            around=around,
            accept_joins=accept_joins,
        )


def _make_supervisor(
    config: Config,
    launcher: Launcher,
    display: ProgressDisplay,
    *,
    evaluator: bool,
    script: bool,
    hooks: Sequence[Hook],
    around: Callable[[Transport], Transport],
    accept_joins: bool,
) -> RunSupervisor:
    """Does the same, without removing the run's folder after a failure."""
    # Here, so that a wrong option is told at once.
    from paceline.live.net.tcp_transport import TcpTransport
    from paceline.live.numpy_memory import PlainMemory
    from paceline.live.same_host.shared_memory import segments_for
    from paceline.runtime.supervisor.credentials import credentials_for
    from paceline.runtime.supervisor.supervisor import RunSupervisor

    credentials = credentials_for(config)
    tls = credentials.tls(party.COORDINATOR) if credentials else None

    def transport(token: str, failed: Callable[[BaseException], None]) -> Transport:
        """Returns the coordinator's transport. Raises ConfigError for an address that is not this machine's."""
        segments, host = segments_for(config.cluster.transport), config.cluster.bind
        try:
            transport = TcpTransport(
                party.COORDINATOR,
                token,
                PlainMemory(),
                host=host,
                failed=failed,
                segments=segments,
                tls=tls,
            )
        except OSError as error:
            raise ConfigError(f"--bind {host}: {error.strerror}; give an address of this machine") from None
        return around(transport)

    try:
        return RunSupervisor(
            config,
            transport,
            launcher,
            display,
            evaluator=evaluator,
            script=script,
            credentials=credentials,
            hooks=hooks,
            store_secrets=StoreSecrets.of(os.environ),
            accept_joins=accept_joins,
        )
    except BaseException:
        if credentials:
            credentials.remove()
        raise


def train(*, progress: bool = True, host: LocalHost | None = None, **options: Unpack[TrainOptions]) -> Summary:
    """Trains one model on this machine, as `paceline train` does, and returns the summary.

    `options` are the flags, with underscores: `train(scheme="ssp", ssp_staleness=3, workers=4, slowdown=[1, 1, 2, 8],
    step_ms=20, data="digits", target_accuracy=0.9)`. The run has processes of its own, so any program may call this.
    `progress` shows a table while the run is active. `host` lets several runs share one warm process.

    Raises ConfigError for an unknown option or a bad value, and RunFailed with the first cause.
    """
    config = configuration.build(_values({**options}))
    with contextlib.nullcontext(host) if host else LocalHost() as running:
        display = make_display(sys.stderr) if progress else Silent()
        return make_supervisor(new_folder(config), running.launcher(), display).run()


def _values(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Turns options by flag into values by section and key."""
    known = {setting.keyword: setting for setting in configuration.settings()}
    values: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if name not in known:
            raise ConfigError(f"unknown option {name!r}{nearest(name, known)}")
        values.setdefault(known[name].section, {})[known[name].key] = value
    return values
