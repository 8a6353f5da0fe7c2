"""`paceline launch` starts your training script, or `paceline train`, on this machine or on several."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from paceline import config as configuration
from paceline.cli.commands import train
from paceline.cli.support.engine_launch import ENGINES, over_engine
from paceline.cli.support.kubernetes_launch import over_kubernetes
from paceline.cli.support.options import Parser, add_detach, help_of, metavar_of, values_of, with_log_level
from paceline.cli.support.run_and_report import ending_in_order, run_and_report, run_scripts
from paceline.cli.support.script_runs import (
    add_host_options,
    check_program,
    check_script,
    evaluator_of,
    has_evaluator,
    own_words,
    ssh_of,
)
from paceline.cli.support.watch_page import add_live_watch, also, check_page, page
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.core.files.safe_path import shown_path
from paceline.launch.detached.command import lead_elsewhere, lead_on_host, leading_words
from paceline.launch.engines import kubernetes, slurm
from paceline.launch.local.environment import split_environment
from paceline.launch.local.interfaces import resolve
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.script_launcher import ScriptLauncher
from paceline.launch.local.script_output import Losses, Output
from paceline.launch.local.train import make_supervisor, new_folder, removing_unused
from paceline.launch.remote.host_settings import fit, hosts_of, is_address, listens_on, only_used
from paceline.launch.remote.hostfile import HostEntry, slots_of
from paceline.launch.remote.launcher import RemoteLauncher, begin
from paceline.launch.remote.placement import Placement, place
from paceline.launch.remote.ssh import Ssh, logins, sync
from paceline.observe.formatting.number_format import counted
from paceline.observe.terminal.progress import make_display
from paceline.runtime.run_folder.status_file import starting

EPILOG = """The script joins with

    pace = paceline.join(model, optimizer, scheme="esync")

and finds its place in the environment. Everything after the options is the command:

  paceline launch -n 4 -s 1 python my_train.py --lr 0.1
  paceline launch -n 4 --slowdown 1,1,2,8 --step-ms 20 python my_train.py
  paceline launch -n 4 -s 2 -H hosts paceline train --data digits --scheme gsp
  paceline launch -H hosts --sync-dir /tmp/mine --dry-run python my_train.py
  paceline launch --detach -H hosts python my_train.py
  paceline launch --detach --leader gpu1 -H hosts python my_train.py

--eval-every calls the function that the script gives as join(evaluate=...); --checkpoint-every saves checkpoints, from
which the same command goes on with --resume auto. One more process of the script does both.
--epochs, --samples, --seconds, --steps and --target-accuracy end the run, whatever the script says.
A hosts file names a machine a line: gpu1 slots=2 gpus=0,1 group=a (docs/launch.md). Leaves trace.jsonl and
summary.json in --out. Ctrl-C ends every process, everywhere.
"""
STOP_RULES = {
    "epochs": "epochs",
    "total-samples": "samples",
    "seconds": "seconds",
    "steps": "steps",
    "target-accuracy": "target-accuracy",
}
"""Settings that end a run, and what they are called here, where nobody names synthetic data."""
SCRIPT_EVAL_SECONDS = 5.0
"""Seconds between two evaluations of a script, unless `--eval-every` says otherwise."""
LAUNCHERS = ("local", "ssh", *ENGINES, kubernetes.NAME)
"""Values of `--launcher`."""


def main(arguments: list[str]) -> int:
    """Starts the command where the options say; returns the exit code of the run.

    kubernetes                 a manifest, or its objects in the cluster (`over_kubernetes`)
    mpi, slurm, sge, ...       an agent on each host, started by that engine (`over_engine`)
    ssh, or a hosts file       an agent on each host, started by a login (`_over_ssh`)
    else                       processes of this machine (`_here`)

    Raises ConfigError, before anything is started, for options that do not go together.
    """
    options = _parser().parse_all(arguments)
    options.words = arguments  # for who writes them down
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise ConfigError("launch what? e.g. `paceline launch -n 4 python my_train.py`")
    own = own_words(command)
    trains = own is not None
    if own is not None and own[:1] != ["train"]:
        raise ConfigError("of Paceline's own commands `paceline train` can be launched, or a script of yours")
    hosts = hosts_of(options.hosts)
    if (options.launcher or "ssh") == "local" and hosts:
        raise ConfigError("--launcher local is this machine: leave --hosts out, or take --launcher ssh")
    values = _values(options, own[1:] if own is not None else None, hosts)
    if not trains:
        check_script(command)
        values["run"]["script"] = shlex.join(command)
    if options.torch_distributed == "auto" and (hosts or options.launcher not in (None, "local")):
        raise ConfigError(
            "--torch-distributed auto is for one machine: name the host of worker 0 and a free port there, such as "
            "--torch-distributed gpu1:29500"
        )
    check_page(options)
    if options.detach or options.write_unit or options.leader:
        return _led_elsewhere(options, configuration.build(values), hosts, "" if trains else "launch")
    if options.write and options.launcher != slurm.NAME:
        raise ConfigError("--write is for --launcher slurm: the file is a script for sbatch")
    if options.launcher == kubernetes.NAME:
        return over_kubernetes(options, configuration.build(values), _settings_given(options))
    if options.launcher in ENGINES:
        return over_engine(options, [] if trains else command, hosts, values)
    if hosts or options.launcher == "ssh":
        return _over_ssh(options, [] if trains else command, hosts, values)
    return _here(options, [] if trains else command, values)


def _parser() -> Parser:
    """Returns the parser. Everything after the first word that is no option belongs to the command.

    Values stay texts here: `_values` reads them, after those of `paceline train` in the command.
    """
    parser = Parser(
        prog="paceline launch", usage="paceline launch [options] COMMAND ...", description=__doc__, epilog=EPILOG
    )
    add = parser.add_argument
    add("-n", "--workers", metavar="N", help="number of workers (default: the slots of the hosts file, or 2)")
    add("-s", "--servers", metavar="S", help="number of server shards (default: 1)")
    add_host_options(add)
    add("--launcher", choices=LAUNCHERS, help="how processes are started (default: ssh with --hosts, or else local)")
    add("--launcher-args", metavar="WORDS", default="", help="more options for mpirun, srun, ..., as one word")
    add("--start-timeout", metavar="S", default="600", help="maximum seconds until a queue has started all processes")
    add("--dry-run", action="store_true", help="print what would be executed where, and end")
    add("--write", metavar="FILE", help="--launcher slurm: write a script for sbatch that does all this, and end")
    for setting in _settings():
        names = (f"--{STOP_RULES.get(setting.flag, setting.flag)}", f"--{setting.flag}")
        dest = setting.flag.replace("-", "_")
        # A truth value has no word behind it: that would be the command.
        kind: dict[str, Any] = {"metavar": metavar_of(setting)}
        if setting.type is bool:
            kind = {"action": "store_const", "const": "true"}
        parser.add_argument(*dict.fromkeys(names), dest=dest, help=help_of(setting), **kind)
    for word in ("-v", "-vv"):
        add(word, action="store_const", dest="verbose", const=str(len(word) - 1), help=argparse.SUPPRESS)
    add_live_watch(parser)
    add_detach(parser)
    add("--leader", metavar="HOST", help="with --detach: the host of the hosts file that leads the run, by ssh")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="command to start")
    return parser


def _settings() -> list[configuration.Flag]:
    """Returns the settings of a run that are flags of this command, too."""
    return [setting for setting in configuration.settings() if setting.launch]


def _values(
    options: argparse.Namespace, of_train: Sequence[str] | None, hosts: tuple[HostEntry, ...]
) -> dict[str, Any]:
    """Returns settings by section and key; flags of this command win over those of `paceline train` behind it.

    of_train  the words after `paceline train`; None for a script, whose end and evaluations are its own by default
    hosts     machines of the hosts file; their slots are the number of workers where nobody gives one
    """
    if of_train is None:
        values: dict[str, Any] = {
            "run": {"scheme": "bsp"},
            "cluster": {"workers": 2},
            "stop": {"epochs": 0.0, "until_stopped": True},
            "checkpoint": {"every": 0.0},
            "evaluation": {"every": SCRIPT_EVAL_SECONDS},
        }
        if hosts:
            values["cluster"]["workers"] = slots_of(hosts)
    else:
        given = train.parse([*of_train])
        if given.detach or given.write_unit:
            raise ConfigError(
                "--detach and --write-unit stand before `paceline train`: they are options of launch here"
            )
        also(options, given)
        values = values_of(given)
        cluster = values.setdefault("cluster", {})
        if hosts:
            cluster.setdefault("workers", slots_of(hosts))
    # Numbers of parties (-n, -s) are settings of the section `cluster` without `launch=True`.
    for setting in configuration.settings():
        text = getattr(options, setting.flag.replace("-", "_"), None)
        if text is not None and (setting.launch or setting.section == "cluster"):
            values.setdefault(setting.section, {})[setting.key] = setting.parse(text)
    if options.checkpoint_every is None and (options.store or options.keep_best):
        values["checkpoint"]["every"] = Config().checkpoint.every  # a script has none unless they are asked for
    return with_log_level(values)


def _settings_given(options: argparse.Namespace) -> list[str]:
    """Returns the flags of settings as they were written, for a manifest that starts the same elsewhere.

    Numbers of workers and servers are left out, since the manifest has a replica for each.
    """
    given = ((setting, getattr(options, setting.flag.replace("-", "_"))) for setting in _settings())
    return [
        word
        for setting, value in given
        if value is not None
        for word in ([f"--{setting.flag}"] if setting.type is bool else [f"--{setting.flag}", value])
    ]


def _led_elsewhere(options: argparse.Namespace, config: Config, hosts: tuple[HostEntry, ...], what: str) -> int:
    """Has another process lead the run: here, on a host or under systemd; returns the exit code. Raises ConfigError."""
    words = leading_words(options.words, options.command)
    if options.leader is None:
        return lead_elsewhere("launch", words, config, what=what, unit=options.write_unit)
    if options.write_unit or not options.detach:
        raise ConfigError(f"--leader {options.leader}: goes with --detach; a unit is written on the host that leads")
    entry = next((host for host in hosts if host.name == options.leader), HostEntry(name=options.leader))
    ssh = ssh_of(options)
    if options.sync_dir:
        sync(ssh, [entry], options.sync_exclude)
    return lead_on_host("launch", words, config, what, entry, ssh)


# ---- here ------------------------------------------------------------------------------------------------
def _here(options: argparse.Namespace, script: Sequence[str], values: dict[str, Any]) -> int:
    """Runs on this machine; `script` is empty for `paceline train`.

    Workers of a script are processes of that script; servers are forked from a warm process. A script without servers
    needs no warm process at all, which saves the import of torch.
    """
    if script:
        check_program(script)
    for flag in ("sync_dir", "sync_exclude", "ssh_config"):
        if getattr(options, flag):
            raise ConfigError(f"--{flag.replace('_', '-')} is for other machines: name them with --hosts FILE")
    if options.interface:
        values.setdefault("cluster", {})["bind"] = resolve(options.interface)
    everybody, by_role = split_environment(options.env, os.environ)
    config = configuration.build(values)
    if options.dry_run:
        parties = counted(config.cluster.servers, "server"), counted(config.cluster.workers, "worker")
        print(f"here: {', '.join(parties)}, coordinator")
        print(f"  {shlex.join(script) or 'workers of paceline train'}")
        return 0
    os.environ.update(everybody)
    config = new_folder(config, "launch" if script else "")
    with page(options, config.run.out), LocalHost() as host:
        local = host.launcher(by_role, warm=not script or config.cluster.servers > 0)
        if not script:
            return run_and_report(make_supervisor(config, local, make_display(sys.stderr)))
        said = Output(config.run.out)
        launcher = ScriptLauncher(script, local, said, by_role)
        evaluator = has_evaluator(config, evaluates=options.eval_every is not None)
        return run_scripts(make_supervisor(config, launcher, Losses(), evaluator=evaluator, script=True), said.close)


# ---- on other machines -----------------------------------------------------------------------------------
def _over_ssh(
    options: argparse.Namespace, script: Sequence[str], hosts: tuple[HostEntry, ...], values: dict[str, Any]
) -> int:
    """Runs on the machines of a hosts file.

    The order matters. The status file comes first, so that `paceline kill` works while logins take their time; then
    the files are copied, as agents import them; agents begin last, all at once.
    """
    if not hosts:
        raise ConfigError("--launcher ssh needs --hosts FILE: one machine a line, such as gpu1 slots=2")
    everybody, by_role = split_environment(options.env, os.environ)
    ssh = ssh_of(options)
    defaults = Config().cluster
    cluster = values.setdefault("cluster", {})
    workers, servers = (cluster.get(key, getattr(defaults, key)) for key in ("workers", "servers"))
    placement = only_used(place(hosts, workers, servers), workers, servers)
    fit(values, placement, listens_on(options.interface, ssh, placement, cluster, dry_run=options.dry_run))
    config = configuration.build(values)
    _check_out(config.run.out)
    evaluator = not script or has_evaluator(config, evaluates=options.eval_every is not None)
    if script and evaluator:
        check_program(script)  # the evaluator runs here
    if options.dry_run:
        print("\n".join(_plan(options, ssh, placement, config, script, evaluator=evaluator)))
        return 0
    config = new_folder(config, "launch" if script else "")
    with removing_unused(config.run.out), ending_in_order(), starting(config.run.out, config.run.scheme):
        if options.sync_dir:
            sync(ssh, placement.hosts, options.sync_exclude)
        with page(options, config.run.out), logins(ssh, placement.hosts) as there, LocalHost() as here:
            bind = "" if is_address(options.interface) else options.interface or ""
            local = here.launcher(by_role, warm=not script)
            begin(there, placement, command=script, environment=everybody, by_role=by_role, bind=bind)
            said = Output(config.run.out)
            beside = evaluator_of(script, local, said, everybody, by_role) if script and evaluator else local
            launcher = RemoteLauncher(there, placement, beside, scripts=bool(script), said=said)
            if script:
                supervisor = make_supervisor(config, launcher, Losses(), evaluator=evaluator, script=True)
                return run_scripts(supervisor, said.close)
            return run_and_report(make_supervisor(config, launcher, make_display(sys.stderr)))


def _check_out(out: str) -> None:
    """Raises ConfigError where agents cannot be told the name of the folder: their messages are JSON, thus UTF-8."""
    try:
        out.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"--out {shown_path(out)}: with several hosts the name of the folder must be UTF-8") from None


def _plan(
    options: argparse.Namespace,
    ssh: Ssh,
    placement: Placement,
    config: Config,
    script: Sequence[str],
    *,
    evaluator: bool,
) -> Iterator[str]:
    """Yields the lines of `--dry-run`: what would be executed where, and which parties each host gets."""
    tls = "TLS" if config.cluster.secured else "no TLS"
    yield f"here: coordinator{', evaluator' if evaluator else ''}; listens on {config.cluster.bind} ({tls})"
    if script and evaluator:
        yield f"  {shlex.join(script)}"
    for number, host in enumerate(placement.hosts):
        yield f"{host}: {', '.join(map(str, placement.parties_of(number)))}"
        if options.sync_dir:
            yield f"  here:  {shlex.join(ssh.rsync(host, options.sync_exclude))}"
        yield f"  here:  {shlex.join(ssh.agent(host))}"
        if script and number in placement.workers:
            yield f"  there: {shlex.join(script)}"
