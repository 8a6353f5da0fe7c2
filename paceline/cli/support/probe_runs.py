"""Measures what `paceline probe` reports: short runs for links between hosts, for the steps of each worker, and on one
machine with servers for what an exchange costs.

Links are measured first, by `bench/peer_links.py` on one worker a host. The steps follow without any exchange, so
that a slow link or a slow worker slows nobody else's steps. Exchanges come last, in a run whose trace tells the core
seconds of steps and messages.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paceline import config as configuration
from paceline.cli.support.run_and_report import RunInterrupted, ending_in_order, run
from paceline.cli.support.script_runs import SshHosts, with_scheme_variables
from paceline.config import Config
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.trace import Span
from paceline.launch.local.environment import Environment
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.script_launcher import ScriptLauncher
from paceline.launch.local.train import Silent, make_supervisor
from paceline.launch.remote.hostfile import HostEntry
from paceline.launch.remote.placement import Placement, place
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.progress import ProgressDisplay, ProgressSnapshot
from paceline.observe.trace.trace_file import TRACE, read_trace
from paceline.runtime.simulated.cluster_from_trace import cluster as cluster_of_run
from paceline.runtime.simulated.cluster_from_trace import step_seconds
from paceline.runtime.spec.launcher import Launcher
from paceline.sim.cluster.measured import MeasuredLink
from paceline.sim.cluster.model import Cluster, Host

if TYPE_CHECKING:
    from paceline.bench.peer_links import PeerLink

ALONE = {"scheme": "localsgd", "tau": 1_000_000}
"""Workers make steps and exchange nothing: any optimizer of a script goes, and slow links slow no step down."""
EXCHANGING = "asp"
"""Every worker exchanges with the servers after each step, and waits for no other worker."""
EXCHANGE_SECONDS = 6.0
"""Seconds of steps with exchanges, at most: their core seconds hardly vary."""
MEET = "bsp"
"""Without servers its workers are connected with one another."""
SHOW_SECONDS = 3.0
"""Seconds between two lines on how many links were measured, or steps made."""
HURRY_SECONDS = 3.0
"""Seconds that a run which is out of time may take to stop, before it is ended at once."""
HANG_SECONDS = 10.0
"""Seconds beyond --seconds after which a probe ends whatever it does, such as a login that hangs."""
Said = Callable[[str, str], None]


class ProbeSite(Protocol):
    """Says where the workers of a probe run."""

    def run(
        self, config: Config, script: Sequence[str], said: Said, display: ProgressDisplay, seconds: float
    ) -> Summary | None:
        """Makes one run, of at most so many seconds; returns its summary, None where there is none."""


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """Runs all workers on this machine. `environment`: what --env says, by kind of party."""

    environment: Environment

    def run(
        self, config: Config, script: Sequence[str], said: Said, display: ProgressDisplay, seconds: float
    ) -> Summary | None:
        """Makes the run on this machine."""
        roles, until = with_scheme_variables(self.environment, config), time.monotonic() + seconds
        with LocalHost() as host:
            local = host.launcher(roles, warm=not script)
            launcher = ScriptLauncher(script, local, said, roles) if script else local
            return _bounded(config, launcher, display, until)


@dataclass(frozen=True, slots=True)
class ProbedHosts:
    """Runs workers on the hosts of a file."""

    hosts: SshHosts

    def run(
        self, config: Config, script: Sequence[str], said: Said, display: ProgressDisplay, seconds: float
    ) -> Summary | None:
        """Makes the run on the hosts that were reached."""
        until = time.monotonic() + seconds  # logging in takes a part of it
        with ending_in_order(), self.hosts.launcher(config, script, said) as (fitted, launcher):
            return _bounded(fitted, launcher, display, until)


def _bounded(config: Config, launcher: Launcher, display: ProgressDisplay, until: float) -> Summary | None:
    """Runs until that moment of the monotonic clock; returns None where training had not begun by then.

    Timers interrupt the run as Ctrl-C would, the second one at once. Only the time tells them apart from it. Raises
    RunInterrupted after Ctrl-C.
    """
    supervisor = make_supervisor(config, launcher, display, evaluator=False)
    left = max(0.0, until - time.monotonic())
    timers = [threading.Timer(s, supervisor.interrupt, ["SIGINT"]) for s in (left, left + HURRY_SECONDS)]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        return run(supervisor)
    except RunInterrupted as end:
        if time.monotonic() < until:
            raise
        return end.summary
    finally:
        for timer in timers:
            timer.cancel()


@contextlib.contextmanager
def ending_after(seconds: float) -> Iterator[None]:
    """Ends the block HANG_SECONDS after so many seconds, by SIGINT. Raises PacelineError then."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:  # a shell starts its background commands so, and nothing would end the block
        signal.signal(signal.SIGINT, signal.default_int_handler)
    over, lock = threading.Event(), threading.Lock()

    def end() -> None:
        with lock:
            if not done:
                over.set()
                os.kill(os.getpid(), signal.SIGINT)  # the main thread may wait for a process

    done = False
    timer = threading.Timer(seconds + HANG_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (KeyboardInterrupt, RunInterrupted):
        if over.is_set():
            raise PacelineError(f"not done within --seconds {seconds:g}, and then hanging: give more") from None
        raise
    finally:
        with lock:
            done = True
        timer.cancel()
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


# ---- links ---------------------------------------------------------------------------------------------------------
def one_each(hosts: Sequence[HostEntry]) -> Placement:
    """Returns a placement of one worker on each host, or of two where there is one host only: they measure the way
    within it."""
    at = tuple(range(len(hosts))) if len(hosts) > 1 else (0, 0)
    slots = (0,) * len(hosts) if len(hosts) > 1 else (0, 1)
    return Placement(hosts=tuple(hosts), workers=at, slots=slots, servers=())


def measure_links(at: ProbeSite, workers: int, seconds: float) -> list[MeasuredLink]:
    """Returns the links between those workers, measured within `seconds`. Raises PacelineError where they do not come
    together.

    What is known when the time is over counts. Links of ranks from `workers` on are left out.
    """
    from paceline.bench.peer_links import MODULE, PeerLink

    found = LinkCounts(workers)
    last: list[str] = []

    def said(party: str, line: str) -> None:
        """Takes a line that a worker has printed: a link, or anything else, which an error may show."""
        if (link := PeerLink.of_line(line)) is not None:
            found.add(link)
        else:
            last.append(line)

    with tempfile.TemporaryDirectory() as folder:
        command = ["python", "-m", MODULE]
        config = configuration.build(
            {
                "run": {"scheme": MEET, "out": str(Path(folder, "links")), "script": shlex.join(command)},
                "cluster": {"workers": workers, "servers": 0, "restarts": 0, "timeout": seconds},
                "stop": {"epochs": 0.0, "until_stopped": True},
            }
        )
        at.run(config, command, said, Silent(), seconds)
    links = found.links()
    if not links and workers > 1:
        raise PacelineError(f"no link could be measured{': ' if last else ''}{''.join(last[-1:])}")
    return links


class LinkCounts:
    """Holds what is known of each direction, and shows how many are measured."""

    def __init__(self, workers: int) -> None:
        self._workers, self._began = workers, time.monotonic()
        self._shown_at = self._began
        self._ways: dict[tuple[int, int], PeerLink] = {}
        self._lock = threading.Lock()

    def add(self, way: PeerLink) -> None:
        """Takes what a worker has measured; a later round replaces an earlier one. Any thread may call it."""
        if max(way.source, way.target) >= self._workers:
            return
        with self._lock:
            self._ways[way.source, way.target] = way
            now = time.monotonic()
            if now - self._shown_at >= SHOW_SECONDS:
                self._shown_at = now
                of = self._workers * (self._workers - 1)
                print(f"  {now - self._began:.0f} s: {len(self._ways)} of {of} directions", file=sys.stderr, flush=True)

    def links(self) -> list[MeasuredLink]:
        """Returns a link for each pair of which a direction is known; the slower direction counts."""
        found = []
        for a, b in sorted({(min(pair), max(pair)) for pair in self._ways}):
            both = [way for pair in ((a, b), (b, a)) if (way := self._ways.get(pair)) is not None]
            gbps = sorted(8e-9 / way.seconds_per_byte for way in both)
            latency_s = min(way.latency_s for way in both)
            faster = gbps[-1] if len(both) > 1 else 0.0
            found.append(MeasuredLink(a=a, b=b, latency_s=latency_s, gbps=gbps[0], faster_gbps=faster))
        return found


# ---- steps ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """Holds, by rank, the seconds of each step and the device. `batch`: samples of a step; `length`: parameters of the
    model."""

    seconds: list[list[float]]
    devices: list[str]
    batch: int
    length: int


class StepCounts:
    """Shows how many steps each worker has made, of how many."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._shown_at = wanted, time.monotonic()

    def begin(self, lines: Sequence[str]) -> None: ...

    def show(self, snapshot: ProgressSnapshot) -> None:
        """Says how far the workers are, every few seconds."""
        if time.monotonic() - self._shown_at < SHOW_SECONDS or not snapshot.workers:
            return
        self._shown_at = time.monotonic()
        least, most = (kind(worker.steps for worker in snapshot.workers) for kind in (min, max))
        print(f"  {snapshot.elapsed_s:.0f} s: {least} to {most} of {self._wanted} steps", file=sys.stderr)

    def close(self) -> None: ...


def measure_steps(
    at: ProbeSite, values: Mapping[str, Mapping[str, Any]], command: Sequence[str], *, steps: int, seconds: float
) -> MeasuredSteps:
    """Measures the steps of each worker. `values`: settings of the cluster, and of a named model where there is no
    command.

    Raises PacelineError with what went wrong, or where nobody finished a step in that time.
    """
    last: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "steps")
        config = configuration.build(
            {
                **values,
                "run": {"scheme": ALONE["scheme"], "out": str(out), "script": shlex.join(command)},
                "cluster": {**values.get("cluster", {}), "servers": 0, "restarts": 0},
                "stop": {"epochs": 0.0, "steps": steps, "seconds": seconds, "until_stopped": True},
                str(ALONE["scheme"]): {"tau": ALONE["tau"]},
            }
        )
        summary = at.run(config, command, last.__setitem__, StepCounts(steps), seconds)
        workers = config.cluster.workers
        records = list(read_trace(out / TRACE)) if summary is not None else []
        found = step_seconds(records, workers)
    if summary is None or not any(found):
        said = "".join(f"; {party} said last: {line}" for party, line in list(last.items())[:1])
        raise PacelineError(
            f"no worker finished a step in the {seconds:.0f} s that were left: give more --seconds{said}"
        )
    devices = {worker.rank: worker.device for worker in summary.workers}
    sizes = [record.samples / record.steps for record in records if isinstance(record, Span) and record.steps]
    return MeasuredSteps(
        seconds=found,
        devices=[devices.get(rank, "cpu") for rank in range(workers)],
        batch=max(1, round(statistics.median(sizes))),
        length=summary.model_length,
    )


# ---- exchanges -----------------------------------------------------------------------------------------------------
def measure_exchanges(
    at: ProbeSite, values: Mapping[str, Mapping[str, Any]], command: Sequence[str], *, servers: int, seconds: float
) -> Cluster | None:
    """Returns a cluster whose hosts share their cores and whose messages cost what they cost in a short run of all
    workers and `servers`; None where the run was too short, or cannot be made, such as with an optimizer of one's own.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "exchanges")
        config = configuration.build(
            {
                **values,
                "run": {"scheme": EXCHANGING, "out": str(out), "script": shlex.join(command)},
                "cluster": {**values.get("cluster", {}), "servers": servers, "restarts": 0},
                "stop": {"epochs": 0.0, "seconds": min(EXCHANGE_SECONDS, seconds), "until_stopped": True},
            }
        )
        try:
            if at.run(config, command, lambda *_: None, Silent(), seconds) is None:
                return None
            found, _ = cluster_of_run(out)
        except PacelineError:
            return None
    return replace(found, hosts=tuple(map(_compact, found.hosts))) if found.messages is not None else None


def _compact(host: Host) -> Host:
    """Returns the host with the median of each device's steps in place of all of them."""
    devices = [
        replace(device, trace=(), seconds=statistics.median(device.trace)) if device.trace else device
        for device in host.devices
    ]
    return replace(host, devices=tuple(devices))


def without_lost(hosts: Sequence[HostEntry], placement: Placement, servers: int) -> tuple[Placement, list[int]]:
    """Returns the placement on `hosts` alone, and which ranks of the former one are left. Raises ConfigError for
    none."""
    kept = [rank for rank, at in enumerate(placement.workers) if placement.hosts[at] in hosts]
    if not kept:
        raise ConfigError("none of the hosts for workers can be reached")
    return place(tuple(hosts), len(kept), servers), kept
