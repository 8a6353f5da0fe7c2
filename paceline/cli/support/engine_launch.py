"""`paceline launch --launcher mpi|slurm|sge|ray|...`: the engine starts an agent a worker; all else is as over ssh.

1. `over_engine` checks the options, finds the address on which this machine listens and opens the run folder.
2. `_run` lets the engine start agents; each calls back to that address with a ticket from the run folder.
3. The hosts and GPUs that the agents report decide the placement, since the engine chose the hosts.
4. A supervisor runs on top of the agents, as it does over ssh.

Under Ray an agent that calls late joins the run again. Elsewhere the run ends in order once the engine has told every
living host to go.
"""

from __future__ import annotations

import argparse
import functools
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline import config as configuration
from paceline.cli.support.run_and_report import ending_in_order, run_and_report, run_scripts
from paceline.cli.support.script_runs import check_program, evaluator_of, has_evaluator
from paceline.cli.support.watch_page import page
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.launch.engines import mpi, ray, sge, slurm, torchrun, yarn
from paceline.launch.engines.callback_agents import Engine, called, listening_address, placed_on, plan
from paceline.launch.engines.restarted_agents import RestartedAgents
from paceline.launch.local.environment import split_environment
from paceline.launch.local.interfaces import address_towards, addresses, planned_towards, resolve
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.script_output import Losses, Output
from paceline.launch.local.train import make_supervisor, new_folder, removing_unused
from paceline.launch.remote.hostfile import HostEntry
from paceline.launch.remote.launcher import RemoteLauncher, begin
from paceline.live.addresses import is_loopback
from paceline.live.same_host.temporary_folder import TemporaryFolder
from paceline.observe.formatting.number_format import counted
from paceline.observe.terminal.progress import make_display
from paceline.runtime.run_folder.status_file import starting

RETURN_SECONDS = 120.0  # Ray takes a minute to know of a dead node, and an autoscaler more to have another
TAKEN = (
    "{} takes all hosts of this run away (SIGTERM to each agent): preempted, queued again, cancelled, or out of time; "
    "the run ends in order"
)
ENGINES = (mpi.NAME, slurm.NAME, sge.NAME, ray.NAME, torchrun.NAME, yarn.NAME)


def over_engine(
    options: argparse.Namespace, script: Sequence[str], hosts: tuple[HostEntry, ...], values: dict[str, Any]
) -> int:
    """Checks the options and carries out `--write`, `--dry-run` or the run itself; returns the exit code.

    `hosts` are those of --hosts, and `values` the settings by section, which this function changes. Raises
    ConfigError for options that the engine does not have.
    """
    for flag in ("sync_dir", "sync_exclude", "ssh_config"):
        if getattr(options, flag):
            raise ConfigError(
                f"--{flag.replace('_', '-')} is for --launcher ssh: {options.launcher} needs shared folders"
            )
    everybody, by_role = split_environment(options.env, os.environ)
    address = _listens_on(options, hosts)
    values.setdefault("cluster", {})["bind"] = address
    run = values.setdefault("run", {})
    keeps = not script or values.get("checkpoint", {}).get("every", 0) > 0
    if options.launcher == slurm.NAME and keeps and run.get("out") and slurm.has_come_back(os.environ):
        # Slurm requeues a preempted job with the same command, so the second start must go on from its checkpoint.
        values.setdefault("checkpoint", {}).setdefault("resume", "auto")
        values["cluster"].pop("initial_workers", None)  # it goes on with all workers
    config = configuration.build(values)
    if options.write:
        return _write(options, config, trains=not script)
    if script and _evaluates(options, config, script):
        check_program(script)
    with TemporaryFolder("engine") as folder:
        engine = _engine(options, hosts, Path(folder), everybody.get("PYTHONPATH", ""), config)
        if options.dry_run:
            print(_plan(engine, options, config, script))
            return 0
        config = new_folder(config, "launch" if script else "")
        with removing_unused(config.run.out), ending_in_order(), starting(config.run.out, config.run.scheme):

            def go() -> int:
                return _run(engine, options, config, script, everybody, by_role)

            return slurm.until_notice(os.environ, go) if isinstance(engine, slurm.Slurm) and engine.inside else go()


def _run(
    engine: Engine,
    options: argparse.Namespace,
    config: Config,
    script: Sequence[str],
    everybody: dict[str, str],
    by_role: Any,
) -> int:
    """Starts the agents, waits for all of them, and makes the run; returns the exit code.

    `everybody` is the environment of all processes, and `by_role` that of parties by kind. An agent must call
    within --start-timeout seconds.
    """
    out, patience = Path(config.run.out), _seconds(options.start_timeout)
    apart = _apart(engine)
    returning = RestartedAgents() if isinstance(engine, ray.Ray) else None
    count = config.cluster.workers + apart
    agents = counted(count, "agent")
    print(f"paceline: {engine.name} starts {agents}, calling {config.cluster.bind}", file=sys.stderr)
    with (
        page(options, config.run.out),
        called(
            engine,
            count,
            address=config.cluster.bind,
            python=options.python,
            folder=out,
            seconds=patience,
            late=returning.register if returning else None,
        ) as callers,
        LocalHost() as here,
    ):
        found = [(hello.host, hello.gpus) for hello, _ in callers]
        # Placement comes after all agents have called, because only they know their hosts and their GPUs.
        placement = placed_on(found, config.cluster.servers, apart=apart)
        there = [host for _, host in callers]
        bind = options.interface if "/" in (options.interface or "") else ""
        local = here.launcher(by_role, warm=not script)
        ready = functools.partial(begin, command=script, environment=everybody, by_role=by_role, bind=bind)
        ready(there, placement)
        said, patience_s = Output(config.run.out), RETURN_SECONDS if returning else 0.0
        evaluator = _evaluates(options, config, script)
        beside = evaluator_of(script, local, said, everybody, by_role) if script and evaluator else local
        launcher = RemoteLauncher(there, placement, beside, scripts=bool(script), said=said, patience_s=patience_s)
        if returning:
            # From here on an agent that calls late is prepared like the first ones, under its own task number,
            # and then joins the launcher.
            returning.join(launcher, lambda host, number: ready([host], placement, first=number))
        display = Losses() if script else make_display(sys.stderr)
        supervisor = make_supervisor(config, launcher, display, evaluator=evaluator, script=bool(script))
        if not returning:  # Ray brings agents back
            launcher.when_taken(lambda: supervisor.taken(TAKEN.format(engine.name)))
        return run_scripts(supervisor, said.close) if script else run_and_report(supervisor)


def _evaluates(options: argparse.Namespace, config: Config, script: Sequence[str]) -> bool:
    """Returns True if the run has an evaluator, which runs here."""
    return not script or has_evaluator(config, evaluates=options.eval_every is not None)


def _extra(options: argparse.Namespace) -> tuple[str, ...]:
    """Returns the words of --launcher-args. Raises ConfigError."""
    try:
        return tuple(shlex.split(options.launcher_args))
    except ValueError as error:
        raise ConfigError(f"--launcher-args: {error}") from None


def _engine(
    options: argparse.Namespace, hosts: tuple[HostEntry, ...], folder: Path, path: str, config: Config
) -> Engine:
    """Returns the engine of --launcher with its options. `folder` is a temporary one for files that the engine
    reads, and `path` the `PYTHONPATH` of all processes, or "". Raises ConfigError where hosts are named to an
    engine that chooses them itself.
    """
    extra = _extra(options)
    match options.launcher:
        case mpi.NAME:
            hostfile = folder / "hosts"
            if hosts:
                mpi.write_hostfile(hosts, hostfile)
            exported = ("-x", f"PYTHONPATH={path}") if path else ()
            return mpi.Mpi(hostfile=str(hostfile) if hosts else "", extra=(*exported, *extra))
        case slurm.NAME:
            engine = slurm.Slurm(hosts=hosts, inside=slurm.inside(os.environ), extra=extra)
            return slurm.in_groups(engine, os.environ, config.cluster.workers, config.cluster.servers)
        case ray.NAME:
            if hosts:
                raise ConfigError("--hosts: Ray chooses hosts itself; say by --launcher-args 'GPU=1' what workers need")
            return ray.configured(extra, config.cluster.servers)
        case yarn.NAME:
            if hosts:
                raise ConfigError("--hosts: YARN chooses hosts itself; --launcher-args 'queue=...' tells it which")
            return yarn.configured(extra, path)
        case torchrun.NAME:
            if hosts:
                raise ConfigError(
                    "--hosts: torchrun starts processes here; start it on each host by hand (docs/launch.md)"
                )
            return torchrun.Torchrun(extra=extra)
        case _:
            if hosts:
                raise ConfigError(
                    "--hosts: Grid Engine chooses hosts itself; --launcher-args '-l h=...' tells it which"
                )
            return sge.GridEngine(logs=str(folder), path=path, extra=extra)


def _apart(engine: Engine) -> int:
    """Returns how many agents are for servers only."""
    return engine.apart if isinstance(engine, slurm.Slurm | ray.Ray) else 0


def _listens_on(options: argparse.Namespace, hosts: tuple[HostEntry, ...]) -> str:
    """Returns the address of this machine that agents can call; for a dry run it may be words that say which one it
    would be.

    The first that applies: --interface, --bind, the loopback for torchrun, whose processes are all here; for MPI
    the address of the route to the first host that is elsewhere; else the
    first address of this machine that others can reach.
    """
    if options.interface:
        return resolve(options.interface)
    if options.bind:
        return str(options.bind)
    if options.launcher == torchrun.NAME:
        return "127.0.0.1"
    if options.launcher == mpi.NAME:
        towards = planned_towards if options.dry_run else address_towards
        others = [address for host in hosts if not is_loopback(address := towards(host.name))]
        return others[0] if others else "127.0.0.1"
    return listening_address(addresses())


def _seconds(text: str) -> float:
    """Returns the seconds of --start-timeout. Raises ConfigError for anything but a number above 0 and below 1e8."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e8:
        raise ConfigError(f"--start-timeout {text}: a number of seconds above 0")
    return seconds


def _write(options: argparse.Namespace, config: Config, *, trains: bool) -> int:
    """Writes an executable script for sbatch and returns 0. Raises ConfigError where the file cannot be written."""
    path = Path(options.write)
    try:
        path.write_text(_script(options, config, trains=trains), encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise ConfigError(f"--write {path}: {error.strerror}") from None
    print(f"written: sbatch {path}")
    return 0


def _script(options: argparse.Namespace, config: Config, *, trains: bool) -> str:
    """Returns the text of a script for sbatch that repeats the typed command without the options that the script
    replaces.

    --dry-run, --write and --launcher-args are left out, with their values: the settings of the last become lines of
    the script.
    """
    words = options.words[: len(options.words) - len(options.command)]
    kept: list[str] = []
    skipped = 0
    for word in words:
        flag, joined, _ = word.partition("=")
        if skipped or flag in ("--dry-run", "--write", "--launcher-args"):
            # The word after `--write` or `--launcher-args` is its value, unless both are one word joined by `=`.
            # --dry-run has no value. A value that was skipped sets the flag back.
            skipped = not skipped and not joined and flag != "--dry-run"
            continue
        kept.append(word)
    own = [*kept, *options.command] if trains else kept
    return slurm.script(
        ["paceline", "launch", *kept, *options.command],
        placed=any(word.partition("=")[0] == "--out" for word in own),
        workers=config.cluster.workers,
        servers=max(1, config.cluster.servers),
        settings=_extra(options),
        resumes=trains or config.checkpoint.every > 0,
    )


def _plan(engine: Engine, options: argparse.Namespace, config: Config, script: Sequence[str]) -> str:
    """Returns the text of --dry-run: what runs here, the command that starts agents, what runs there, and the
    script.
    """
    ticket = Path(config.run.out or "runs/NEW").absolute() / "ticket"
    apart = _apart(engine)
    tls = "TLS" if config.cluster.secured else "no TLS"
    servers = counted(config.cluster.servers, "server")
    evaluator = _evaluates(options, config, script)
    lines = [
        f"here: coordinator{', evaluator' if evaluator else ''}; listens on {config.cluster.bind} ({tls})",
        f"  {plan(engine, config.cluster.workers + apart, options.python, ticket)}",
        f"there: {counted(config.cluster.workers, 'agent')}, a worker on each; "
        + (f"{apart} for {servers}" if apart else f"{servers} among them"),
    ]
    if script:
        lines.append(f"  {shlex.join(script)}")
    if isinstance(engine, slurm.Slurm) and not engine.inside:
        lines += ["or as a job of its own, by sbatch (--write FILE):", _script(options, config, trains=not script)]
    return "\n".join(lines)
