"""Runs of a user's own script whose scheme the command says: `paceline race ... -- python train.py`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from paceline import config as configuration
from paceline.cli.support.options import Parser, values_of
from paceline.cli.support.run_and_report import Runner
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.core.scheme import names
from paceline.launch.local.environment import scheme_variables
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.script_launcher import ScriptLauncher, programs_path
from paceline.launch.local.script_output import Output
from paceline.launch.local.train import make_supervisor
from paceline.observe.terminal.progress import make_display

OF_THE_COMMAND = ("run", "cluster", "stop")
"""Sections of settings that the command has; the others are said in the script."""


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the command behind `--`. Raises ConfigError where nothing stands there, or no script.

    Whether there is such a program `check_program` says, of this machine.
    """
    if "--" not in arguments:
        return list(arguments), []
    at = list(arguments).index("--")
    own, command = list(arguments[:at]), list(arguments[at + 1 :])
    if not command:
        raise ConfigError("-- stands before the command of a script, such as -- python train.py")
    if command[0] == "paceline":
        raise ConfigError(
            "-- stands before your own script; `paceline` has no place there, and its options stand before --"
        )
    return own, command


def parsed(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Raises ConfigError, with the way out where the command of a script has nothing before it."""
    try:
        return parser.parse_all(arguments)
    except ConfigError as error:
        if "unexpected argument" in str(error):
            raise ConfigError(f"{error}; your own script stands behind --, as in -- python train.py") from None
        raise


def check_program(command: Sequence[str]) -> None:
    """Raises ConfigError."""
    if shutil.which(command[0], path=programs_path()) is None:
        raise ConfigError(f"{command[0]}: no such program")


def script_values(namespace: argparse.Namespace, command: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Settings of a run of that command. Raises ConfigError for a flag about what the script says itself."""
    values = values_of(namespace)
    schemes = names()
    for setting in configuration.settings():
        given = getattr(namespace, f"{setting.section}.{setting.key}", None) is not None
        is_ours = setting.section in (*OF_THE_COMMAND, *schemes) or setting.flag == "samples"
        if given and not is_ours:
            raise ConfigError(f"--{setting.flag}: your script says that itself; change it there, or leave out `-- ...`")
    stop = {"epochs": 0.0, **values.get("stop", {}), "until_stopped": True}
    if samples := values.get("data", {}).get("samples"):  # as `launch` calls it; nobody names synthetic data here
        stop["samples"] = samples
    kept = {section: of for section, of in values.items() if section in (*OF_THE_COMMAND, *schemes)}
    return {**kept, "stop": stop, "run": {**values.get("run", {}), "script": shlex.join(command)}}


class ScriptRuns:
    """One run of the command after the other, on this machine; what scripts print is in the logs of each."""

    def __init__(self, command: Sequence[str], host: LocalHost) -> None:
        self._command, self._host = list(command), host

    def start(self, config: Config) -> Runner:
        local = self._host.launcher(warm=config.cluster.servers > 0)
        said = Output(config.run.out, quiet=True)
        launcher = ScriptLauncher(self._command, local, said, {"worker": scheme_variables(config)})
        return make_supervisor(config, launcher, make_display(sys.stderr), evaluator=False)


def with_scheme(values: dict[str, dict[str, Any]], scheme: str) -> Config:
    """The checked configuration. Raises ConfigError."""
    return configuration.build({**values, "run": {**values["run"], "scheme": scheme}})
