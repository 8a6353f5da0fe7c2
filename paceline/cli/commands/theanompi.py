"""`paceline theanompi` starts a session of Theano-MPI, as its `tmlauncher` does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from paceline import config as configuration
from paceline.cli.commands import launch
from paceline.cli.support.options import Parser, help_of, metavar_of
from paceline.compat.theanompi.session import RULES, TheanoMpiSession, launched, read_session
from paceline.core.errors import ConfigError
from paceline.live.cpu_topology import AUTO

EPILOG = """examples:
  paceline theanompi -cfg=launch_session.cfg
  paceline theanompi -r=BSP -d=cpu,cpu -file=theanompi.models.cifar10 -class=Cifar10_model -set data=digits
  paceline theanompi -cfg=launch_session.cfg --out runs/a --slowdown 1,4 --step-ms 20

The file is read, not executed. Flags override it. -file may name a file, my_model.py, with a class that follows
Theano-MPI's contract (docs/migration-theano-mpi.md). Models of Theano-MPI are found by their old names; -set gives them
data, data_dir, epochs, batch_size, lr, resize and width. Options of `paceline launch` may follow.
"""
TAKEN = ("device",)
"""Settings of `launch` that the session itself decides."""


def main(arguments: list[str]) -> int:
    options = _parser().parse_all(arguments)
    values: dict[str, Any] = read_session(Path(options.cfg)) if options.cfg else {}
    if options.devices:
        values["devices"] = tuple(options.devices.split(","))
    for name in ("rule", "modelfile", "modelclass", "sync_type", "exch_strategy"):
        if getattr(options, name):
            values[name] = getattr(options, name)
    for name, flag in (("rule", "-r"), ("devices", "-d"), ("modelfile", "-file"), ("modelclass", "-class")):
        if not values.get(name):
            raise ConfigError(f"a session needs {flag}=..., or -cfg=FILE with all of them; see --help")
    session = TheanoMpiSession(**values, settings=dict(_pair(text) for text in options.settings or ()))
    words, lines = launched(session, Path("runs"))
    given = _launch_words(options)
    if options.bind and "--bind-cores" not in given:
        given += ["--bind-cores", AUTO]
        lines.append(f"-bind is --bind-cores {AUTO}: cores and NUMA nodes are divided among the processes of a host")
    for line in lines:
        print(f"paceline: {line}", file=sys.stderr)
    return launch.main([*given, *words])


def _parser() -> Parser:
    parser = Parser(prog="paceline theanompi", usage="paceline theanompi [options]", description=__doc__, epilog=EPILOG)
    add = parser.add_argument_group("Theano-MPI's flags").add_argument
    add("-cfg", "--config", dest="cfg", metavar="FILE", help="a launch_session.cfg")
    add("-r", "--rule", dest="rule", metavar="RULE", help=", ".join(RULES))
    add("-d", "--devices", dest="devices", metavar="D", help="cuda0,cuda1, or cpu,cpu: one for each process")
    add("-file", "--modelfile", dest="modelfile", metavar="M", help="a dotted module, or a .py file")
    add("-class", "--modelclass", dest="modelclass", metavar="C", help="the class in it")
    add("-bsp_sync_type", dest="sync_type", metavar="T", help="cdd (default) or avg")
    add("-bsp_exch_strategy", dest="exch_strategy", metavar="S", help="nccl32 (default), nccl16, ar, asa32, ...")
    add("-b", "-bind", dest="bind", action="store_true", help="bind processes to cores, as --bind-cores auto")
    add("-s", "--size", metavar="N", help="ignored, as in Theano-MPI: devices say how many")
    add("-set", dest="settings", action="append", metavar="NAME=VALUE", help="a setting of the model")
    group = parser.add_argument_group("options of paceline launch")
    for setting in _settings():
        group.add_argument(
            f"--{setting.flag}", dest=f"launch.{setting.flag}", metavar=metavar_of(setting), help=help_of(setting)
        )
    return parser


def _settings() -> list[configuration.Flag]:
    return [setting for setting in configuration.settings() if setting.launch and setting.flag not in TAKEN]


def _launch_words(options: Any) -> list[str]:
    """Returns the options of `launch` that were given."""
    given = ((setting.flag, getattr(options, f"launch.{setting.flag}")) for setting in _settings())
    return [word for flag, value in given if value is not None for word in (f"--{flag}", value)]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"-set {text}: must be NAME=VALUE")
    return name, value
