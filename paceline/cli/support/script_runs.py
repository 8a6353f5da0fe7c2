"""Runs of a user's own script whose scheme the command says: `paceline race ... -- python train.py`.

`race` and `probe` read their command with `split_command`. `ScriptRuns` starts runs on this machine;
`SshHosts` and `HostRun` do so on the machines of a hosts file.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline import config as configuration
from paceline.cli.support.options import Parser, values_of
from paceline.cli.support.run_and_report import Runner
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.core.scheme import names
from paceline.launch.local.environment import Environment, scheme_variables, split_environment
from paceline.launch.local.launcher import LocalHost, LocalLauncher
from paceline.launch.local.script_launcher import ScriptLauncher, programs_path
from paceline.launch.local.script_output import Output
from paceline.launch.local.train import make_supervisor
from paceline.launch.remote.host_settings import fit, is_address, listens_on
from paceline.launch.remote.launcher import RemoteLauncher, begin
from paceline.launch.remote.placement import Placement
from paceline.launch.remote.ssh import Ssh, logins
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.progress import make_display
from paceline.runtime.run_folder.status_file import starting
from paceline.runtime.spec.launcher import Launcher

OF_THE_COMMAND = ("run", "cluster", "stop", "evaluation")
"""Sections of settings that the command has; the others are said in the script."""
PYTHON = re.compile(r"python[\d.]*$")
"""The name of an interpreter: python, python3, python3.12."""


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns our own words, and the command behind `--`. Raises ConfigError where nothing stands there, or no script.

    Without `--` the command is empty. `check_program` says whether this machine has such a program.
    """
    if "--" not in arguments:
        return list(arguments), []
    at = list(arguments).index("--")
    own, command = list(arguments[:at]), list(arguments[at + 1 :])
    if not command:
        raise ConfigError("-- stands before the command of a script, such as -- python train.py")
    if own_words(command) is not None:
        raise ConfigError(
            "-- stands before your own script; `paceline` has no place there, and its options stand before --"
        )
    check_script(command)
    return own, command


def own_words(command: Sequence[str]) -> list[str] | None:
    """Returns what follows `paceline`, its path, or `python -m paceline`; None for any other command."""
    if Path(command[0]).name == "paceline":
        return [*command[1:]]
    if PYTHON.match(Path(command[0]).name) and [*command[1:3]] == ["-m", "paceline"]:
        return [*command[3:]]
    return None


def parsed(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Returns the options. Raises ConfigError, with the way out where the command of a script has nothing before it."""
    try:
        return parser.parse_all(arguments)
    except ConfigError as error:
        if "unexpected argument" in str(error):
            raise ConfigError(f"{error}; your own script stands behind --, as in -- python train.py") from None
        raise


def check_program(command: Sequence[str]) -> None:
    """Raises ConfigError where this machine has no such program, or no such script for its Python."""
    if shutil.which(command[0], path=programs_path()) is None:
        raise ConfigError(f"{command[0]}: no such program")
    script = _script_of(command)
    if script is not None and script.endswith(".py") and not Path(script).is_file():
        raise ConfigError(f"{script}: no such file in {Path.cwd()}; give its path from there")


def check_script(command: Sequence[str]) -> None:
    """Raises ConfigError for a script on standard input, and for one that would import another `paceline`."""
    if not PYTHON.match(Path(command[0]).name):
        return
    script = _script_of(command)
    if script in ("", "-"):
        raise ConfigError(
            f"{shlex.join(command)}: each worker is a process of its own, and standard input can be read once: "
            "write the script to a file"
        )
    if not {"-P", "-I"} & set(command):
        folder = Path(script).resolve().parent if script else Path.cwd()  # what Python puts in front of its path
        module, package = folder / "paceline.py", folder / "paceline" / "__init__.py"
        if module.is_file():
            raise ConfigError(f"{module}: `import paceline` would import this file: give it another name")
        if package.is_file() and not (package.parent / "launch" / "join.py").is_file():
            raise ConfigError(f"{package.parent}: `import paceline` would import this folder: give it another name")


def _script_of(command: Sequence[str]) -> str | None:
    """Returns the script that a command of Python runs, "" if there is none in it; None for -c, -m and other programs.

    Options of Python may stand before the script.
    """
    if not PYTHON.match(Path(command[0]).name):
        return None
    words = iter(command[1:])
    for word in words:
        if word in ("-c", "-m"):
            return None
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(words, "")
        elif word == "-" or not word.startswith("-"):
            return word
    return ""


def has_evaluator(config: Config, *, evaluates: bool) -> bool:
    """Returns True if one more process of the script evaluates (--eval-every), or saves checkpoints."""
    return evaluates or config.checkpoint.every > 0


def evaluator_of(
    script: Sequence[str],
    local: LocalLauncher,
    said: Callable[[str, str], None],
    everybody: Mapping[str, str],
    by_role: Environment,
) -> ScriptLauncher:
    """Returns what starts the evaluator on this machine, where the workers run the script on others.

    `everybody` and `by_role` are variables of all processes and of those of a kind; the evaluator has those of workers.
    Raises ConfigError where this machine has no such program.
    """
    check_program(script)
    return ScriptLauncher(script, local, said, {"worker": {**everybody, **by_role.get("worker", {})}})


def script_values(namespace: argparse.Namespace, command: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the settings of a run of that command. Raises ConfigError for a flag about what the script says itself.

    The run ends when the script does (`until_stopped`), or at the samples, seconds or steps of the command.
    """
    values = values_of(namespace)
    schemes = names()
    for setting in configuration.settings():
        given = getattr(namespace, f"{setting.section}.{setting.key}", None) is not None
        is_ours = setting.section in (*OF_THE_COMMAND, *schemes) or setting.flag == "samples"
        is_ours &= setting.section != "evaluation" or setting.key == "every"
        # A file given with --config may hold such settings, for it may be shared with `train`. They are dropped
        # below. A flag is an explicit wish, so it is refused and not dropped.
        if given and not is_ours:
            raise ConfigError(f"--{setting.flag}: your script says that itself; change it there, or leave out `-- ...`")
    stop = {"epochs": 0.0, **values.get("stop", {}), "until_stopped": True}
    if samples := values.get("data", {}).get("samples"):  # as `launch` calls it; nobody names synthetic data here
        stop["samples"] = samples
    kept = {section: of for section, of in values.items() if section in (*OF_THE_COMMAND, *schemes)}
    nothing_kept = {"every": 0.0}  # runs are compared, and nobody goes on with one
    script = {**values.get("run", {}), "script": shlex.join(command)}
    return {**kept, "checkpoint": nothing_kept, "stop": stop, "run": script}


class ScriptRuns:
    """Starts one run of the command after the other, on this machine; the logs of each run have what its scripts
    print."""

    def __init__(self, command: Sequence[str], host: LocalHost, by_role: Environment, *, evaluator: bool) -> None:
        """`evaluator`: each run has one more process of the command, which evaluates."""
        self._command, self._host, self._by_role, self._evaluator = list(command), host, by_role, evaluator

    def start(self, config: Config) -> Runner:
        """Returns a run that has not begun, with as many workers as `config` says, each of them the command."""
        roles = with_scheme_variables(self._by_role, config)
        local = self._host.launcher(roles, warm=config.cluster.servers > 0)
        launcher = ScriptLauncher(self._command, local, Output(config.run.out, quiet=True), roles)
        return make_supervisor(config, launcher, make_display(sys.stderr), evaluator=self._evaluator, script=True)


def with_scheme_variables(by_role: Environment, config: Config) -> dict[str, Mapping[str, str]]:
    """Returns the environment of parties by kind, in which workers find the scheme of the command."""
    return {**by_role, "worker": {**by_role.get("worker", {}), **scheme_variables(config)}}


def with_scheme(values: dict[str, dict[str, Any]], scheme: str) -> Config:
    """Returns the checked configuration of these settings with that scheme. Raises ConfigError."""
    return configuration.build({**values, "run": {**values["run"], "scheme": scheme}})


# ---- on other machines -----------------------------------------------------------------------------------
def add_host_options(add: Callable[..., object]) -> None:
    """Adds what is needed to start a script on the machines of a hosts file; `add`: of a parser, or of a group."""
    add("-H", "--hosts", metavar="FILE", help="file with one machine a line (default: this machine)")
    add("-i", "--interface", metavar="WHICH", help="where processes listen: eth0, 10.0.0.5 or 10.0.0.0/8")
    words = "environment variable for all processes; worker:K=V for workers only"
    add("--env", metavar="K[=V]", action="append", default=[], help=words)
    add("--sync-dir", metavar="DIR", help="send this folder to DIR on every host first, by rsync, and run there")
    add("--sync-exclude", metavar="PATTERN", action="append", default=[], help="do not send files of this pattern")
    add("--python", metavar="FILE", default=sys.executable, help="interpreter on the hosts (default: as here)")
    add("--ssh-config", metavar="FILE", help="configuration for ssh -F (default: $PACELINE_SSH, or ssh's own)")


def check_host_options(options: argparse.Namespace, command: Sequence[str]) -> None:
    """Raises ConfigError for options of other machines where none are named, and for a program that is not here."""
    if options.hosts:
        return
    for flag in ("sync_dir", "sync_exclude", "ssh_config", "interface"):
        if getattr(options, flag):
            raise ConfigError(f"--{flag.replace('_', '-')} is for other machines: name them with --hosts FILE")
    if command:
        check_program(command)


def ssh_of(options: argparse.Namespace) -> Ssh:
    """Returns how hosts are reached: --ssh-config, else $PACELINE_SSH, else ssh's own; in the folder of --sync-dir,
    else this one."""
    everybody, _ = split_environment(options.env, os.environ)
    return Ssh(
        folder=options.sync_dir or os.getcwd(),
        python=options.python,
        path=everybody.get("PYTHONPATH", ""),
        config=options.ssh_config or os.environ.get("PACELINE_SSH", ""),
    )


Opened = tuple[Config, Launcher]
"""The configuration that fits the hosts, and what starts parties there."""


@dataclass(frozen=True, slots=True)
class SshHosts:
    """Describes hosts that are reached by ssh, each worker where the placement says."""

    options: argparse.Namespace
    ssh: Ssh
    placement: Placement

    @contextlib.contextmanager
    def launcher(
        self, config: Config, script: Sequence[str], said: Callable[[str, str], None], *, evaluator: bool = False
    ) -> Iterator[Opened]:
        """Keeps an agent on each host while the context lasts; yields the configuration that fits the hosts, and the
        launcher.

        Without `script` workers are those of `train`. `said` has each line that a script prints, with the party's
        name. With `evaluator` the script runs here, too, and evaluates. Raises PacelineError where a host cannot be
        reached.
        """
        everybody, by_role = split_environment(self.options.env, os.environ)
        config = self._fitted(config)
        roles = with_scheme_variables(by_role, config)
        bind = "" if is_address(self.options.interface) else self.options.interface or ""
        with (
            starting(config.run.out, config.run.scheme),
            logins(self.ssh, self.placement.hosts) as there,
            LocalHost() as here,
        ):
            local = here.launcher(roles, warm=not script)
            begin(there, self.placement, command=script, environment=everybody, by_role=roles, bind=bind)
            beside = evaluator_of(script, local, said, everybody, roles) if evaluator else local
            yield config, RemoteLauncher(there, self.placement, beside, scripts=bool(script), said=said)

    def _fitted(self, config: Config) -> Config:
        """Returns the configuration with what the hosts file says, where the user has not said otherwise."""
        values = configuration.to_dict(config)
        # A value that equals the default counts as not given, because the configuration no longer tells the two
        # apart. `fit` then sets both: the address always,
        # the device where a host has GPUs.
        found_there = {key for key in ("bind", "device") if values["cluster"][key] == getattr(Config().cluster, key)}
        values["cluster"] = cluster = {key: of for key, of in values["cluster"].items() if key not in found_there}
        fit(values, self.placement, listens_on(self.options.interface, self.ssh, self.placement, cluster))
        return configuration.build(values)


class HostRun:
    """Makes one run of the command on the hosts of a file; `interrupt` also ends it while hosts are being reached."""

    def __init__(self, hosts: SshHosts, command: Sequence[str], config: Config, *, evaluator: bool = False) -> None:
        """`evaluator`: one more process of the command evaluates, on this machine."""
        self._hosts, self._command, self._config, self._evaluator = hosts, list(command), config, evaluator
        self._supervisor: Runner | None = None
        self._interrupted = ""

    def run(self) -> Summary:
        """Reaches the hosts, trains, and returns the summary. Raises PacelineError."""
        said = Output(self._config.run.out, quiet=True)
        opened = self._hosts.launcher(self._config, self._command, said, evaluator=self._evaluator)
        with opened as (config, launcher):
            display = make_display(sys.stderr)
            self._supervisor = make_supervisor(config, launcher, display, evaluator=self._evaluator, script=True)
            return self._supervisor.run()

    def interrupt(self, signal: str) -> None:
        """Ends the run; before there is a supervisor by KeyboardInterrupt, which ends the reaching of hosts."""
        self._interrupted = signal
        # No run has begun that could end in order, so the exception unwinds the logins; each context ends its
        # agents.
        if self._supervisor is None:
            raise KeyboardInterrupt
        self._supervisor.interrupt(signal)

    @property
    def interrupted(self) -> str:
        """The signal that ended the run, or "". The supervisor knows of it once there is one."""
        return self._supervisor.interrupted if self._supervisor else self._interrupted

    @property
    def left(self) -> Mapping[str, Sequence[str]]:
        """The files that the run has left, by folder; there are none before the supervisor exists."""
        return self._supervisor.left if self._supervisor else {}
