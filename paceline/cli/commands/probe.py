"""`paceline probe` measures your machines and the links between them, and writes the cluster file of `advise`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline import config as configuration
from paceline.cli.support.options import Parser, help_of, metavar_of
from paceline.cli.support.probe_runs import (
    HURRY_SECONDS,
    MeasuredSteps,
    ProbedHosts,
    ThisMachine,
    ending_after,
    measure_exchanges,
    measure_links,
    measure_steps,
    one_each,
    without_lost,
)
from paceline.cli.support.run_and_report import RunInterrupted
from paceline.cli.support.script_runs import (
    SshHosts,
    add_host_options,
    check_host_options,
    parsed,
    split_command,
    ssh_of,
)
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.local.environment import split_environment
from paceline.launch.remote.host_settings import hosts_of
from paceline.launch.remote.hostfile import HostEntry, slots_of
from paceline.launch.remote.placement import Placement, place
from paceline.launch.remote.ssh import reachable, sync
from paceline.observe.formatting.columns import columns
from paceline.observe.formatting.number_format import counted
from paceline.sim.cluster.measured import MeasuredHost, MeasuredLink, cluster_of, median_step_s
from paceline.sim.cluster.model import Cluster
from paceline.sim.cluster.toml_file import text_of

EPILOG = """First the links between the hosts are measured. Then workers make steps of the script, or of --model on
--data, and exchange nothing; nothing is kept of what they train. The file is for `advise` and `simulate`:

  paceline probe -n 3 -- python train.py                       this machine, three workers
  paceline probe -H hosts -- python train.py                   the machines of a hosts file, as for `launch`
  paceline probe -H hosts --model resnet18 --data synthetic    a named model, or your own module:function
  paceline probe -n 3 --slowdown 1,1,3 --step-ms 20            emulated
  paceline advise --cluster mine.toml --parameters 25000000    what to do with it

A script joins by `paceline.join` and needs no change. Hosts that cannot be reached are named and left out. Links are
measured with a megabyte each in both directions; what else goes over them at that time makes them slower.
"""
SETTINGS = ("slowdown", "step-ms", "device", "threads", "model", "width", "data", "data-dir", "samples", "batch-size")
"""Settings of a run that are flags here, too: those by which a step takes longer or shorter."""
OF_A_MODEL = ("model", "width", "data", "data-dir", "samples", "batch-size")
"""Those among them that a script decides for itself."""
WRITTEN_BY_US = "measured by paceline probe"
"""Stands in each file that this command writes. A file without it is never overwritten."""
PAIRS_SHOWN = 12
"""Links that are listed; 16 hosts have 120."""
UNLIKE = 1.1  # the other direction of a link is named if it is so many times as fast


def main(arguments: list[str]) -> int:
    """Measures links and steps, writes the cluster file and prints the table; returns the exit code.

    0 when the file was written, 130 after Ctrl-C. Raises ConfigError for options that contradict one another, before
    anything is started, and PacelineError when a measurement fails.
    """
    own, command = split_command(arguments)
    options = parsed(_parser(), own)
    _check(options, command)
    hosts = hosts_of(options.hosts)
    values = _values(options)
    workers = options.workers or (slots_of(hosts) if hosts else 2)
    if len(slow := values.get("cluster", {}).get("slowdown", ())) not in (0, workers):
        raise ConfigError(f"--slowdown names {len(slow)} workers, and there are {workers}: give -n {len(slow)}")
    values.setdefault("cluster", {})["workers"] = workers
    configuration.build({**values, "stop": {"epochs": 0.0, "until_stopped": True}})  # what is wrong is told at once
    try:
        with ending_after(options.seconds):
            if hosts:
                return _over_ssh(options, command, hosts, values)
            return _here(options, command, values)
    except (KeyboardInterrupt, RunInterrupted) as end:
        print("paceline: interrupted", file=sys.stderr)
        return end.exit_code if isinstance(end, RunInterrupted) else 130


def _parser() -> Parser:
    """Returns the parser; `--` separates the command of a script from the options."""
    usage = "paceline probe [options] [-- COMMAND ...]"
    parser = Parser(prog="paceline probe", usage=usage, description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("-n", "--workers", metavar="N", type=_count, help="number of workers (default: the slots of the hosts, or 2)")
    add("-s", "--servers", metavar="S", type=_servers, default=1, help="number of servers in the file (default: 1)")
    add("--local", action="store_true", help="this machine, which is the default")
    add("-o", "--write", metavar="FILE", default="mine.toml", help="the cluster file to write (default: mine.toml)")
    add("--seconds", metavar="S", type=_seconds, default=60.0, help="maximum seconds of all of it (default: 60)")
    add("--steps", metavar="N", type=_count, default=40, help="steps of each worker (default: 40)")
    add_host_options(parser.add_argument_group("where a script runs").add_argument)
    for setting in configuration.settings():
        if setting.flag in SETTINGS:
            add(f"--{setting.flag}", metavar=metavar_of(setting), help=help_of(setting))
    return parser


def _count(text: str) -> int:
    """Returns a whole number from 1 to 10,000. Raises ArgumentTypeError for another text."""
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 to 10000")
    return int(text)


def _servers(text: str) -> int:
    """Returns a number of servers, which may be 0. Raises ArgumentTypeError for another text."""
    return 0 if text == "0" else _count(text)


def _seconds(text: str) -> float:
    """Returns the seconds that the whole probe may take. Raises ArgumentTypeError for fewer than 5."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 5 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 5 to 86400")
    return seconds


def _check(options: argparse.Namespace, command: Sequence[str]) -> None:
    """Raises ConfigError for options that do not go together, and where the file must not be written."""
    if options.hosts and options.local:
        raise ConfigError("--local is this machine: leave --hosts out, or --local")
    check_host_options(options, command)
    for flag in OF_A_MODEL if command else ():
        if getattr(options, flag.replace("-", "_")) is not None:
            raise ConfigError(f"--{flag}: your script says that itself; leave it out, or the script")
    path = Path(options.write)
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise ConfigError(f"--write {path}: not a file in a folder that there is")
    if path.exists() and WRITTEN_BY_US not in path.read_text(encoding="utf-8", errors="replace"):
        raise ConfigError(f"{path} is there and not of this command: name another file with --write")


def _values(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Returns settings by section and key, of the flags that were given. Raises ConfigError."""
    values: dict[str, dict[str, Any]] = {}
    for setting in configuration.settings():
        text = getattr(options, setting.flag.replace("-", "_"), None) if setting.flag in SETTINGS else None
        if text is not None:
            values.setdefault(setting.section, {})[setting.key] = setting.parse(text)
    return values


# ---- where -----------------------------------------------------------------------------------------------
def _here(options: argparse.Namespace, command: Sequence[str], values: dict[str, dict[str, Any]]) -> int:
    """Probes this machine: the way between two of its processes, then steps of all workers at once.

    All workers step at the same time, as in a run: they share cores and memory, which one alone would not show.
    """
    until = time.monotonic() + options.seconds
    everybody, by_role = split_environment(options.env, os.environ)
    os.environ.update(everybody)
    here, workers = ThisMachine(by_role), values["cluster"]["workers"]
    parts = 3 if options.servers else 2
    _say(f"[1/{parts}] the way between two processes of this machine")
    within = measure_links(here, 2, _left(until) / 2)
    _say(f"[2/{parts}] {options.steps} steps of {_what(command, values)} on {counted(workers, 'worker')}")
    steps = measure_steps(here, values, command, steps=options.steps, seconds=_left(until))
    shared = None
    if options.servers:
        _say(f"[3/{parts}] exchanges with {counted(options.servers, 'server')}")
        shared = measure_exchanges(here, values, command, servers=options.servers, seconds=_left(until))
        if shared is None:
            _say("what an exchange costs is not known: give more --seconds, or a model that the servers can train")
    machine = HostEntry(name="here", slots=workers)
    placement = Placement(
        hosts=(machine,), workers=(0,) * workers, slots=tuple(range(workers)), servers=(0,) * options.servers
    )
    return _leave(options, command, values, placement, steps, [], within[0], shared)


def _over_ssh(
    options: argparse.Namespace,
    command: Sequence[str],
    hosts: tuple[HostEntry, ...],
    values: dict[str, dict[str, Any]],
) -> int:
    """Probes the machines of a hosts file. Links come first, while nothing else uses them.

    Machines that cannot be reached are left out, and ranks are given anew to the workers that remain.
    """
    until = time.monotonic() + options.seconds
    placement = place(hosts, values["cluster"]["workers"], options.servers)
    ssh = ssh_of(options)
    used = [placement.hosts[number] for number in placement.used()]
    _say(f"[1/3] reaching {counted(len(used), 'host')}: {', '.join(map(str, used))}")
    good, problems = reachable(ssh, used)
    for name, problem in problems:
        _say(f"  {name} is left out: {problem}")
    placement, kept = without_lost(good, placement, options.servers)
    cluster = values["cluster"]
    cluster["workers"] = len(kept)
    if cluster.get("slowdown"):
        cluster["slowdown"] = tuple(cluster["slowdown"][rank] for rank in kept)
    if options.sync_dir:
        sync(ssh, good, options.sync_exclude)
    _say(f"[2/3] the links between {counted(len(good), 'host')}")
    together = ProbedHosts(SshHosts(options, ssh, one_each(good)))
    links = measure_links(together, max(2, len(good)), _left(until) / 2)
    _say(f"[3/3] {options.steps} steps of {_what(command, values)} on {counted(len(kept), 'worker')}")
    there = ProbedHosts(SshHosts(options, ssh, placement))
    steps = measure_steps(there, values, command, steps=options.steps, seconds=_left(until))
    within = links[0] if len(good) == 1 else None
    return _leave(options, command, values, placement, steps, links if len(good) > 1 else [], within)


def _left(until: float) -> float:
    """Returns the seconds for what is measured next: those that are left, but for what its end takes."""
    return max(1.0, until - time.monotonic() - HURRY_SECONDS)


def _say(line: str) -> None:
    """Prints a line on stderr at once, so that stdout has the results alone."""
    print(line, file=sys.stderr, flush=True)


def _what(command: Sequence[str], values: dict[str, dict[str, Any]]) -> str:
    """Returns in words what is trained: the name of the script's file, or `model on data`."""
    if command:
        return next((Path(word).name for word in command if word.endswith(".py")), command[0])
    config = configuration.build({key: values[key] for key in ("model", "data") if key in values})
    return f"{config.model.name} on {config.data.name}"


# ---- what it leaves --------------------------------------------------------------------------------------
def _leave(
    options: argparse.Namespace,
    command: Sequence[str],
    values: dict[str, dict[str, Any]],
    placement: Placement,
    steps: MeasuredSteps,
    links: Sequence[MeasuredLink],
    within: MeasuredLink | None,
    shared: Cluster | None = None,
) -> int:
    """Writes the cluster file, prints the table and the command to type next; returns the exit code.

    within: the link between two processes of one host, where that was measured.
    shared: the cluster of a run with exchanges on one machine; cores, steps and messages are taken from it.
    Raises PacelineError where the file cannot be written.
    """
    for rank, seconds in enumerate(steps.seconds):
        if not seconds:
            host = placement.hosts[placement.workers[rank]]
            _say(f"worker {rank} on {host} finished no step, and is left out: give more --seconds")
    what = f"{_what(command, values)}, {steps.length:,} parameters, {counted(steps.batch, 'sample')} a step"
    hosts = _measured(placement, steps)
    cluster = cluster_of(hosts, links, within, about=f"{WRITTEN_BY_US}: {what}")
    if shared is not None and shared.workers == cluster.workers:
        cluster = replace(
            cluster, hosts=shared.hosts, step_s=shared.step_s, messages=shared.messages, network=shared.network
        )
    try:
        Path(options.write).write_text(text_of(cluster), encoding="utf-8")
    except OSError as error:
        raise PacelineError(f"--write {options.write}: {error.strerror}") from None
    print(_table(hosts, placement, steps, cluster))
    print(_links_text(hosts, links, within))
    if cluster.messages is not None:
        print(_costs_text(cluster, steps.length))
    print(f"left in {options.write}: {what}")
    sizes = f"--parameters {steps.length} --batch-size {steps.batch}"
    print(f"next: paceline advise --cluster {shlex.quote(options.write)} {sizes}")
    return 0


def _measured(placement: Placement, steps: MeasuredSteps) -> list[MeasuredHost]:
    """Returns what was measured of each host, in the order of the hosts file.

    A worker that finished no step is left out. A host without workers has no device; it may still hold a server.
    """
    found = []
    for number, host in enumerate(placement.hosts):
        ranks = [rank for rank, at in enumerate(placement.workers) if at == number and steps.seconds[rank]]
        each = tuple((steps.devices[rank], tuple(steps.seconds[rank])) for rank in ranks)
        found.append(MeasuredHost(name=str(host), steps=each, servers=placement.servers.count(number)))
    return found


def _table(hosts: Sequence[MeasuredHost], placement: Placement, steps: MeasuredSteps, cluster: Cluster) -> str:
    """Returns a row for each worker: its host, device, steps, milliseconds a step, and speed.

    Speed is relative to the cluster's step, that of the fastest device: 0.5 takes twice as long.
    """
    rows = []
    for rank, seconds in enumerate(steps.seconds):
        if seconds:
            median = median_step_s(seconds)
            name = hosts[placement.workers[rank]].name
            speed = f"{cluster.step_s / median:.2f}"
            rows.append((name, str(rank), steps.devices[rank], str(len(seconds)), f"{median * 1e3:.4g}", speed))
    return columns(("host", "worker", "device", "steps", "ms/step", "speed"), rows)


def _links_text(hosts: Sequence[MeasuredHost], links: Sequence[MeasuredLink], within: MeasuredLink | None) -> str:
    """Returns the links, the slowest first, at most PAIRS_SHOWN of them."""
    lines = []
    if within is not None:
        lines.append(f"within a host: {_way(within)}")
    slow_first = sorted(links, key=lambda link: -link.megabyte_s)
    lines += [f"{hosts[link.a].name} - {hosts[link.b].name}: {_way(link)}" for link in slow_first[:PAIRS_SHOWN]]
    if len(links) > PAIRS_SHOWN:
        lines.append(f"and {len(links) - PAIRS_SHOWN} faster ones, the fastest {_way(slow_first[-1])}")
    return "\n".join(lines)


def _costs_text(cluster: Cluster, length: int) -> str:
    """Returns in two lines what steps and exchanges cost the cores."""
    assert cluster.messages is not None
    costs, vector_mb = cluster.messages, 4e-6 * length / max(1, cluster.servers)
    step_ms = 1e3 * max(device.cpu_s for host in cluster.hosts for device in host.devices)
    worker_ms = 2e3 * (costs.worker_s + costs.worker_s_per_mb * vector_mb)
    server_ms = 2e3 * (costs.server_s + costs.server_s_per_mb * vector_mb)
    return (
        f"of {cluster.hosts[0].cores} cores: {step_ms:.3g} ms a step, {worker_ms:.3g} ms an exchange at a worker\n"
        f"and {server_ms:.3g} ms at a server"
    )


def _way(link: MeasuredLink) -> str:
    """Returns a link in words: the latency one way in milliseconds, the bandwidth in Gbit/s."""
    differ = link.faster_gbps > UNLIKE * link.gbps
    back = f", {link.faster_gbps:.3g} the other way" if differ else ""
    return f"{link.latency_s * 1e3:.2g} ms one way, {link.gbps:.3g} Gbit/s{back}"
