"""`paceline launch --launcher mpi|slurm|sge|ray|...`: the engine starts an agent a worker; all else is as over ssh."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline import config as configuration
from paceline.cli.running import Losses, ending_in_order, run_and_report, run_scripts
from paceline.cli.watch import page
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.job.standing import starting
from paceline.launch import mpi, ray, sge, slurm, torchrun, yarn
from paceline.launch.agents import RemoteCrew, begin
from paceline.launch.called import Engine, called, listening_address, placed_on, plan
from paceline.launch.environment import split_environment
from paceline.launch.hosts import Host
from paceline.launch.interface import address_towards, addresses, resolve
from paceline.launch.local import LocalHost
from paceline.launch.run import conductor_of, new_folder
from paceline.launch.script import Output
from paceline.live.tcp import is_loopback
from paceline.observe.progress import make_view

ENGINES = (mpi.NAME, slurm.NAME, sge.NAME, ray.NAME, torchrun.NAME, yarn.NAME)


def over_engine(
    options: argparse.Namespace, script: Sequence[str], hosts: tuple[Host, ...], values: dict[str, Any]
) -> int:
    for flag in ("sync_dir", "sync_exclude", "ssh_config"):
        if getattr(options, flag):
            raise ConfigError(
                f"--{flag.replace('_', '-')} is for --launcher ssh: {options.launcher} needs shared folders"
            )
    everybody, by_role = split_environment(options.env, os.environ)
    address = _listens_on(options, hosts)
    values.setdefault("cluster", {})["bind"] = address
    config = configuration.build(values)
    with tempfile.TemporaryDirectory(prefix="paceline-engine-") as folder:
        engine = _engine(options, hosts, Path(folder), everybody.get("PYTHONPATH", ""))
        if options.dry_run:
            print(_plan(engine, options, config, script))
            return 0
        config = new_folder(config)
        with ending_in_order(), starting(config.run.out, config.run.scheme):
            return _run(engine, options, config, script, everybody, by_role)


def _run(
    engine: Engine,
    options: argparse.Namespace,
    config: Config,
    script: Sequence[str],
    everybody: dict[str, str],
    by_role: Any,
) -> int:
    workers, out, patience = config.cluster.workers, Path(config.run.out), _seconds(options.start_timeout)
    print(f"paceline: {engine.name} starts {workers} agents, which call {config.cluster.bind}", file=sys.stderr)
    with (
        page(options.watch, config.run.out),
        called(
            engine,
            workers,
            address=config.cluster.bind,
            python=options.python,
            folder=out,
            seconds=patience,
        ) as callers,
        LocalHost() as here,
    ):
        placement = placed_on([(hello.host, hello.gpus) for hello, _ in callers], config.cluster.servers)
        there = [host for _, host in callers]
        bind = options.interface if "/" in (options.interface or "") else ""
        local = here.crew(by_role, warm=not script)
        begin(there, placement, command=script, environment=everybody, by_role=by_role, bind=bind)
        crew = RemoteCrew(there, placement, local, scripts=bool(script), said=Output(config.run.out))
        if script:
            return run_scripts(conductor_of(config, crew, Losses(), evaluator=False), config.run.out)
        return run_and_report(conductor_of(config, crew, make_view(sys.stderr)), config.run.out)


def _engine(options: argparse.Namespace, hosts: tuple[Host, ...], folder: Path, path: str) -> Engine:
    try:
        extra = tuple(shlex.split(options.launcher_args))
    except ValueError as error:
        raise ConfigError(f"--launcher-args: {error}") from None
    match options.launcher:
        case mpi.NAME:
            hostfile = folder / "hosts"
            if hosts:
                mpi.write_hostfile(hosts, hostfile)
            exported = ("-x", f"PYTHONPATH={path}") if path else ()
            return mpi.Mpi(hostfile=str(hostfile) if hosts else "", extra=(*exported, *extra))
        case slurm.NAME:
            return slurm.Slurm(hosts=hosts, inside=slurm.inside(os.environ), extra=extra)
        case ray.NAME:
            if hosts:
                raise ConfigError("--hosts: Ray chooses hosts itself; say by --launcher-args 'GPU=1' what workers need")
            return ray.configured(extra)
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


def _listens_on(options: argparse.Namespace, hosts: tuple[Host, ...]) -> str:
    """The address of this machine that agents can call."""
    if options.interface:
        return resolve(options.interface)
    if options.bind:
        return str(options.bind)
    if options.launcher == torchrun.NAME:
        return "127.0.0.1"
    if options.launcher == mpi.NAME:
        others = [address for host in hosts if not is_loopback(address := address_towards(host.name))]
        return others[0] if others else "127.0.0.1"
    return listening_address(addresses())


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e8:
        raise ConfigError(f"--start-timeout {text}: a number of seconds above 0")
    return seconds


def _plan(engine: Engine, options: argparse.Namespace, config: Config, script: Sequence[str]) -> str:
    ticket = Path(config.run.out or "runs/NEW").absolute() / "ticket"
    tls = "TLS" if config.cluster.secured else "no TLS"
    lines = [
        f"here: coordinator{'' if script else ', evaluator'}; listens on {config.cluster.bind} ({tls})",
        f"  {plan(engine, config.cluster.workers, options.python, ticket)}",
        f"there: {config.cluster.workers} agents, a worker on each; {config.cluster.servers} servers among them",
    ]
    if script:
        lines.append(f"  {shlex.join(script)}")
    if isinstance(engine, slurm.Slurm) and not engine.inside:
        command = [a for a in sys.argv if a != "--dry-run"]
        lines += [
            "or as a job of its own, by sbatch:",
            slurm.script(["paceline", *command[1:]], config.cluster.workers),
        ]
    return "\n".join(lines)
