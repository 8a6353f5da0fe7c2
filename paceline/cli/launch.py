"""`paceline launch`: your own training script, as several workers on this machine."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence

from paceline import config as configuration
from paceline.cli.options import Parser
from paceline.cli.running import Interrupted, run
from paceline.core.errors import ConfigError
from paceline.launch.local import LocalHost
from paceline.launch.run import Silent, conductor_of, new_folder, next_folder
from paceline.launch.script import ScriptCrew

EPILOG = """The script joins with

    pace = paceline.join(model, optimizer, scheme="esync")

and finds its place in the environment. Everything after the options is the command:

  paceline launch -n 4 -s 1 python my_train.py --lr 0.1
  paceline launch -n 4 --slowdown 1,1,2,8 --step-ms 20 python my_train.py

Leaves trace.jsonl and summary.json in --out. Ctrl-C ends every process.
"""


class _Losses(Silent):
    """Says who was lost, and nothing else: what is printed is the scripts'."""

    def __init__(self) -> None:
        self._begun = False

    def begin(self, lines: Sequence[str]) -> None:
        for line in lines if self._begun else ():
            print(f"paceline: {line}", file=sys.stderr, flush=True)
        self._begun = True


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="paceline launch", usage="paceline launch [options] COMMAND ...", description=__doc__, epilog=EPILOG
    )
    parser.add_argument("-n", "--workers", metavar="N", help="number of workers (default: 2)", default="2")
    parser.add_argument("-s", "--servers", metavar="S", help="number of server shards (default: 1)", default="1")
    for flag in (
        "slice-mb",
        "shards",
        "slowdown",
        "step-ms",
        "device",
        "transport",
        "bind",
        "tls",
        "mean",
        "timeout",
        "dead-after",
        "out",
    ):
        setting = next(s for s in configuration.settings() if s.flag == flag)
        parser.add_argument(f"--{flag}", help=setting.limits.help)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="what to start")
    namespace = parser.parse_all(arguments)
    command = namespace.command[1:] if namespace.command[:1] == ["--"] else namespace.command
    if not command:
        raise ConfigError("launch what? e.g. `paceline launch -n 4 python my_train.py`")
    if shutil.which(command[0]) is None:
        raise ConfigError(f"{command[0]}: no such program")
    values: dict[str, dict[str, object]] = {"run": {"scheme": "bsp", "out": next_folder("launch")}}
    for setting in configuration.settings():
        text = getattr(namespace, setting.flag.replace("-", "_"), None)
        if text is not None and setting.section in ("cluster", "run"):
            values.setdefault(setting.section, {})[setting.key] = setting.parse(text)
    config = new_folder(configuration.build(values))
    with LocalHost() as host:
        conductor = conductor_of(config, ScriptCrew(command, host.crew()), _Losses(), evaluator=False)
        try:
            summary = run(conductor)
        except Interrupted as end:
            print("paceline: interrupted", file=sys.stderr)
            return end.exit_code
    steps = ", ".join(f"{worker.rank}: {worker.steps}" for worker in summary.workers)
    print(f"{summary.scheme}: {summary.seconds:.1f} s, {summary.samples} samples; steps by worker: {steps}")
    print(f"left in {config.run.out}: config.toml trace.jsonl summary.json")
    return 0
