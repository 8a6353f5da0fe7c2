"""`paceline race` runs the same job under several schemes in turn, and says which one wins and why."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline import config as configuration
from paceline.cli.support.options import Parser, add_settings, values_of
from paceline.cli.support.run_and_report import RunInterrupted, Runner, run
from paceline.cli.support.script_runs import (
    HostRun,
    ScriptRuns,
    SshHosts,
    add_host_options,
    check_host_options,
    parsed,
    script_values,
    split_command,
    ssh_of,
    with_scheme,
)
from paceline.cli.support.watch_page import add_live_watch, page
from paceline.config import Config
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.scheme import lookup, names
from paceline.launch.local.environment import split_environment
from paceline.launch.local.fork_server_process import ForkServerProcess
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import make_supervisor, new_folder, removing_unused
from paceline.launch.remote.host_settings import hosts_of, only_used
from paceline.launch.remote.hostfile import HostEntry, slots_of
from paceline.launch.remote.placement import place
from paceline.launch.remote.ssh import sync
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.progress import make_display

EPILOG = """examples:
  paceline race                                               every scheme, 4 workers, handwritten digits
  paceline race --data text --model gpt --schemes bsp,diloco,decoupled --slowdown 1,1,2,8     a language model
  paceline race --schemes bsp,asp,gsp,esync --workers 4 --slowdown 1,1,2,10 --step-ms 20 --target-accuracy 0.9
  paceline race --schemes bsp,esync --model my_net.py:Net --data my_net.py:load      your own model and data
  paceline race --schemes bsp,esync,asp --workers 3 -- python train.py --lr 0.1      your own script
  paceline race --schemes bsp,esync,asp -H hosts -- python train.py                  on the machines of a hosts file

Without a target and another end, runs on digits end at an accuracy of 0.95 and those on text at a loss of 3.2.

Of a script, the scheme of this command wins over the one in `paceline.join`, and --epochs, --samples, --seconds,
--steps and --target-accuracy win over its own end. Runs are compared by what it says with pace.report(accuracy=...)
or pace.report(loss=...), or by join(evaluate=...), which --eval-every 5 calls in a process of its own. What it prints
is in logs/ of each folder. Model, data and optimizer are the script's: --lr and the like are refused.

Leaves one folder a scheme, race.json (their summaries) and race.png in --out. Exits with 1 if a run failed.
"""


def main(arguments: list[str], process: ForkServerProcess | None = None) -> int:
    """Runs every scheme in turn and prints the comparison; returns 1 if a run failed, 130 after Ctrl-C, else 0.

    `process`: a fork server for the runs that was started already.
    All configurations are checked before the first run starts. Raises ConfigError for those that contradict themselves.
    """
    arguments, command = split_command(arguments)
    usage = "paceline race [options] [-- COMMAND ...]"
    parser = Parser(prog="paceline race", usage=usage, description=__doc__, epilog=EPILOG)
    parser.add_argument("--schemes", default="all", help="names separated by commas, or all (default: all)")
    add_settings(parser, leave_out=("scheme",))
    add_live_watch(parser)
    add_host_options(parser.add_argument_group("where a script runs").add_argument)
    namespace = parsed(parser, arguments)
    if command:
        return _of_script(namespace, command)
    if namespace.hosts or namespace.env:
        raise ConfigError(f"--{'hosts' if namespace.hosts else 'env'} is for your own script: add -- python train.py")
    check_host_options(namespace, command)
    # All are checked before the first one starts.
    given = values_of(namespace)
    values = with_race_end(given)
    configs, out = with_folders([configured(values, name) for name in chosen(namespace.schemes)], "race")
    with removing_unused(out), page(namespace, out), LocalHost(process) as host:
        tell_defaults(given, configs[0])
        return race(
            configs, Path(out), lambda config: make_supervisor(config, host.launcher(), make_display(sys.stderr))
        )


def _of_script(namespace: argparse.Namespace, command: list[str]) -> int:
    """Each run has the scheme that this command says; model, data and optimizer are the script's."""
    check_host_options(namespace, command)
    values, hosts = script_values(namespace, command), hosts_of(namespace.hosts)
    cluster = values.setdefault("cluster", {})
    if hosts:
        cluster.setdefault("workers", slots_of(hosts))
    configs, out = with_folders([with_scheme(values, name) for name in chosen(namespace.schemes)], "race")
    print(f"each run takes its scheme from --schemes, not from the script; it prints to {out}/*/logs", file=sys.stderr)
    everybody, by_role = split_environment(namespace.env, os.environ)
    evaluator = "every" in values.get("evaluation", {})
    with removing_unused(out), page(namespace, out):
        if hosts:
            there = _on_hosts(namespace, hosts, configs[0])
            return race(configs, Path(out), lambda config: HostRun(there, command, config, evaluator=evaluator))
        os.environ.update(everybody)
        with LocalHost() as host:
            return race(configs, Path(out), ScriptRuns(command, host, by_role, evaluator=evaluator).start)


def _on_hosts(namespace: argparse.Namespace, hosts: tuple[HostEntry, ...], config: Config) -> SshHosts:
    """Returns the hosts that have something to do; copies this folder to them if `--sync-dir` asks for it."""
    workers, servers = config.cluster.workers, config.cluster.servers
    ssh, placement = ssh_of(namespace), only_used(place(hosts, workers, servers), workers, servers)
    if namespace.sync_dir:
        sync(ssh, placement.hosts, namespace.sync_exclude)
    return SshHosts(namespace, ssh, placement)


def chosen(schemes: str) -> list[str]:
    """The names in `a,b,c` or `all`. Raises ConfigError when one comes twice or is unknown."""
    words = names() if schemes == "all" else [word.strip() for word in schemes.split(",")]
    if len(set(words)) != len(words):
        raise ConfigError(f"--schemes {schemes}: name each scheme once")
    for word in words:
        lookup(word)
    return words


def with_race_end(values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns `values` by section and key, with the default end of a race where they have none."""
    copied = {section: dict(entries) for section, entries in values.items()}
    if (end := configuration.race_end(values)) is not None:
        copied["stop"] = {**copied.get("stop", {}), end.setting: end.value, "epochs": end.epochs}
    return copied


def configured(values: Mapping[str, Mapping[str, Any]], scheme: str) -> Config:
    """Returns the checked configuration of one run of the race. Raises ConfigError."""
    return configuration.build({**values, "run": {**values.get("run", {}), "scheme": scheme}})


def tell_defaults(values: Mapping[str, Mapping[str, Any]], config: Config) -> None:
    """Prints on stderr what `config` has of the end and of the length of a step that `values` do not say."""
    if (end := configuration.race_end(values)) is not None:
        print(f"each run ends at {end}: the default for {config.data.name}", file=sys.stderr)
    if config.cluster.slowdown and "step_ms" not in values.get("cluster", {}):
        step_ms = f"{config.cluster.step_ms:g} ms"
        print(
            f"a step lasts {step_ms} (--step-ms) times --slowdown: the default for {config.model.name}", file=sys.stderr
        )


def with_folders(configs: Sequence[Config], what: str) -> tuple[list[Config], str]:
    """`configs`, each with a folder of its own below that of the race; and that folder, new and named after `what`.

    Raises ConfigError when the folder that was asked for holds something.
    """
    out = new_folder(configs[0], what).run.out
    runs = [dataclasses.replace(config.run, out=str(Path(out) / config.run.scheme)) for config in configs]
    return [dataclasses.replace(config, run=run) for config, run in zip(configs, runs, strict=True)], out


def race(configs: Sequence[Config], out: Path, start: Callable[[Config], Runner]) -> int:
    """Makes one run after the other, and returns the exit code."""
    summaries: list[Summary] = []
    failed = False
    for number, config in enumerate(configs, 1):
        print(f"[{number}/{len(configs)}] {config.run.scheme}", file=sys.stderr)
        try:
            summaries.append(run(start(new_folder(config))))
        except RunInterrupted as end:
            summaries += [end.summary] if end.summary else []
            _leave_behind(summaries, out)
            print("paceline: interrupted", file=sys.stderr)
            return end.exit_code
        except ConfigError:
            raise
        except PacelineError as error:
            failed = True
            print(f"paceline: {config.run.scheme}: {error}", file=sys.stderr)
    _leave_behind(summaries, out)
    return 1 if failed else 0


def _leave_behind(summaries: list[Summary], out: Path) -> None:
    """Writes race.json and race.png, and prints the table of the runs that have ended.

    It is called after Ctrl-C, too: what has run by then is kept.
    """
    if not summaries:
        return
    from rich.console import Console

    # matplotlib and rich take half a second, and are not needed where all runs failed.
    from paceline.observe.plots import run_figures
    from paceline.observe.terminal.race import race_table, race_text
    from paceline.observe.trace import trace_file

    document = [json.loads(summary.to_json()) for summary in summaries]
    (out / "race.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    run_figures.race(
        [(s, trace_file.read_trace(out / s.scheme / trace_file.TRACE)) for s in summaries], out / "race.png"
    )
    if sys.stdout.isatty():
        Console().print(race_table(summaries))
    else:
        print(race_text(summaries))
    print(f"left in {out}: race.json race.png and a folder for each scheme")
