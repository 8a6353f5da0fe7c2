"""`paceline train` trains one model under one scheme on this machine, with even or uneven workers."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from typing import Any

from paceline import config as configuration
from paceline.cli.support.options import Parser, add_detach, add_settings, config_of, values_of
from paceline.cli.support.run_and_report import run_and_report
from paceline.cli.support.watch_page import add_live_watch, page
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.engine.import_path import is_path
from paceline.launch.external.detect import SCHEDULER, WORKER, ExternalProcess, detect_external
from paceline.launch.local.fork_server_process import ForkServerProcess
from paceline.launch.local.launcher import LocalHost, prepare_seconds
from paceline.launch.local.train import make_supervisor, new_folder
from paceline.observe.terminal.progress import make_display

EPILOG = """examples:
  paceline train                                              4 workers, handwritten digits, ESync
  paceline train --scheme ssp --ssp.staleness 3 --slowdown 1,1,2,8 --step-ms 20
  paceline train --data fashion-mnist --data-dir DIR --model lenet --target-accuracy 0.8
  paceline train --model my.py:Net --data my.py:load      your own class, or functions of yours
  paceline train --scheme bsp --servers 0                     workers average instead of servers; see --allreduce

  paceline train --scheme bsp --slowdown 1,1,1,4 --step-ms 20 --watch         and a page that shows who holds whom up

  paceline train --detach                                     goes on when the terminal is closed; `paceline attach`

  paceline train --out runs/a --checkpoint-every 60           a checkpoint a minute, and one at the end or at Ctrl-C
  paceline train --config runs/a/config.toml --out runs/a --resume auto       goes on after a crash

A function for --data returns (train, test), each a torch Dataset of pairs (x, label) or a pair of tensors; one for
--model takes nothing and returns a torch.nn.Module. All hosts import them, from the folder where the command runs.

The run leaves config.toml, trace.jsonl, summary.json, model.safetensors, curve.png and checkpoints in --out; --config
reads such a config.toml again. Ctrl-C ends the run and keeps what there is; once more ends it at once.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of `paceline train`; `paceline launch` parses with it what stands behind its own options.

    Raises ConfigError for an unknown option or a value that cannot be read.
    """
    parser = Parser(prog="paceline train", description=__doc__, epilog=EPILOG)
    add_settings(parser)
    add_live_watch(parser)
    add_detach(parser)
    return parser.parse_all(arguments)


def main(arguments: list[str], process: ForkServerProcess | None = None) -> int:
    """Makes one run on this machine, or takes part in one that something else starts; returns the exit code.

    `process`: a fork server for the run that was started already.

    torchrun, Slurm, MPI, or a person by hand may start this command once for each party. Their environment variables
    say so (`launch/external/detect.py`), and then this process is one party and not the supervisor of all.
    """
    namespace = parse(arguments)
    if (external := detect_external(os.environ)) is not None:
        if namespace.watch or namespace.alert_hook:
            flag = "--watch" if namespace.watch else "--alert-hook"
            raise ConfigError(f"{flag}: run `paceline watch` where the run is led; this is one process of several")
        if namespace.detach or namespace.write_unit:
            raise ConfigError("--detach and --write-unit: whoever starts these processes looks after them")
        return _detected(external, values_of(namespace))
    if namespace.detach or namespace.write_unit:
        from paceline.launch.detached.command import lead_elsewhere, leading_words

        return lead_elsewhere("train", leading_words(arguments), config_of(namespace), unit=namespace.write_unit)
    config = new_folder(config_of(namespace))
    with page(namespace, config.run.out), LocalHost(process) as host:
        return run_and_report(make_supervisor(config, host.launcher(), make_display(sys.stderr)))


def run_settings(values: dict[str, dict[str, Any]]) -> tuple[int, str]:
    """Makes a run of `values`, by section and key; returns the exit code and the folder of the run.

    As `main` it takes one part of a run whose processes somebody else starts. Then the folder is "" in all but the one
    that leads, and a worker trains on the device that its own command names: other systems start each with its own.
    """
    if (external := detect_external(os.environ)) is not None:
        leads = external.kind == SCHEDULER
        if leads:
            values = {**values, "run": {**values["run"], "out": new_folder(configuration.build(values)).run.out}}
        device = values.get("cluster", {}).get("device", "") if external.kind == WORKER else ""
        return _detected(external, values, device), values["run"]["out"] if leads else ""
    config = new_folder(configuration.build(values))
    with LocalHost() as host:
        return run_and_report(make_supervisor(config, host.launcher(), make_display(sys.stderr))), config.run.out


def _detected(external: ExternalProcess, values: dict[str, dict[str, Any]], device: str = "") -> int:
    """Runs one party of a run, whose processes torchrun, Slurm, MPI or somebody's hand starts; on `device`, unless the
    leader says where."""
    from paceline.launch.external import follower, rendezvous
    from paceline.launch.external import leader as leading

    external = rendezvous.with_job(external)
    # A mistake is told by all, and before anybody waits.
    config = configuration.build(leading.with_numbers(external, values))
    if external.kind == SCHEDULER:
        return leading.lead(external, values, trains=True, run=run_and_report, display=make_display(sys.stderr))
    leader = follower.start_leader(external, values, trains=True) if external.leads else None
    place = follower.register(external, leader, prepare_s=prepare_seconds(config))
    check_same_code(place.spec.config, config)
    if device:
        place = dataclasses.replace(place, spec=dataclasses.replace(place.spec, device=device))
    return follower.take_part(place)


def check_same_code(told: Config, own: Config) -> None:
    """Raises ConfigError where whoever leads the run names code that this process's command does not name."""
    for flag in ("model", "data"):
        theirs, ours = (getattr(config, flag).name for config in (told, own))
        if is_path(theirs) and theirs != ours:
            raise ConfigError(f"--{flag} {ours}: rank 0 says --{flag} {theirs}; give all processes the same command")
