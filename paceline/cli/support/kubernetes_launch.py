"""`paceline launch --launcher kubernetes`: all of a run in the cluster; this command hands it over and ends."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence

from paceline.cli.support.script_runs import own_words
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.launch.engines import kubernetes
from paceline.launch.local.environment import split_environment


def over_kubernetes(options: argparse.Namespace, config: Config, given: Sequence[str]) -> int:
    """Creates the objects of a run in the cluster, or prints them for --dry-run; returns the exit code.

    `config` is as it was given, and used for its numbers; `given` are the flags of `paceline launch` itself that
    are settings, as flag and value in turn. Raises ConfigError for options that the cluster decides itself, and for
    a flag that stands on both sides of the command. The command returns once the objects exist; it does not wait
    for the run.
    """
    for flag in ("hosts", "interface", "sync_dir", "sync_exclude", "ssh_config", "watch", "control", "alert_hook"):
        if getattr(options, flag):
            raise ConfigError(f"--{flag.replace('_', '-')}: Kubernetes chooses hosts, and its image has the code")
    command = options.command[1:] if options.command[0] == "--" else options.command
    if given and own_words(command) is None:
        raise ConfigError(f"{given[0]}: a script's run in Kubernetes has -n and -s; `paceline train` takes settings")
    try:
        cluster = kubernetes.configured(shlex.split(options.launcher_args))
    except ValueError as error:
        # ConfigError is a ValueError, so it would be caught with those of `shlex`; it already names what is wrong.
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"--launcher-args: {error}") from None
    said = {word.partition("=")[0] for word in command}
    if twice := next((flag for flag in given[::2] if flag in said), None):
        raise ConfigError(f"{twice} is given twice: give it once")
    everybody, by_role = split_environment(options.env, os.environ)
    if by_role["server"]:
        name = next(iter(by_role["server"]))
        raise ConfigError(
            f"--env server:{name}: in Kubernetes servers are with who leads; give it to all as --env {name}"
        )
    objects = kubernetes.manifests(
        cluster,
        [*command, *given],
        workers=config.cluster.workers,
        servers=config.cluster.servers,
        restarts=config.cluster.restarts,
        beginning=config.cluster.beginning,
        environment=everybody,
        of_workers=by_role["worker"],
    )
    scope = f" -n {cluster.namespace}" if cluster.namespace else ""
    if options.dry_run:
        print(json.dumps(objects, indent=2))
        print(
            f"the Secret is not among them; make it first, from a file that you remove then:\n"
            f"  openssl rand -hex 32 > token\n"
            f"  kubectl{scope} create secret generic {cluster.secret} --from-file=token && rm token",
            file=sys.stderr,
        )
        return 0
    kubernetes.create(cluster, objects)
    print(f"handed over to Kubernetes as {cluster.name}")
    print(f"  kubectl{scope} logs -f job/{cluster.name}             how it goes")
    if config.cluster.beginning < config.cluster.workers:
        patch = json.dumps({"spec": {"parallelism": config.cluster.workers}})
        print(f"  kubectl{scope} patch job {cluster.name}-workers -p '{patch}'    lets all workers join")
    print(f"  kubectl{scope} delete job,service,secret -l paceline/run={cluster.name}    ends it")
    return 0
