"""`paceline speedo` takes a command line of SpeeDO's master or worker, and trains a net of Caffe."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from paceline.cli.commands import train
from paceline.cli.support.options import Parser
from paceline.compat.speedo.command_line import (
    REFUSED,
    WITHOUT_EFFECT,
    SpeedoFlags,
    environment_of,
    read_solver,
    started,
    translated,
)
from paceline.core.errors import ConfigError

EPILOG = """examples:
  paceline speedo --solver cifar10_full_solver.prototxt --worker 3 --redis localhost --test 500 --maxIter 1000 --sync
  paceline speedo --solver lenet_solver.prototxt --data mnist --worker 4 --maxIter 2000 --movingRate 0.5 --train 5
  paceline speedo java -cp SpeeDO-akka-1.0.jar com.htc.speedo.akka.AkkaUtil --solver S --worker 3 --maxIter 1000
  paceline speedo --solver S --worker 2 --maxIter 1000 --host 127.0.0.1 --port 56126            the master, which waits
  paceline speedo --solver S --host 127.0.0.1 --master akka.tcp://SpeeDO@127.0.0.1:56126/user/host       one worker

Without --port all workers start here. --solver names a solver file, or sync, async, partial, weedout, easgd or hybrid
with --model and --data. The first line is the same command in Paceline's words. Options of `paceline train` may follow.
docs/migration-speedo.md has a row for each flag.
"""
FOLDER = Path("runs") / "caffe"
CODE = '''"""The net of {net}, for `paceline train`; `paceline speedo` wrote this file."""

from paceline.compat.speedo import caffe_net

NET = {net!r}


def net():
    return caffe_net.built(NET)


def data():
    return caffe_net.data(NET)
'''


def main(arguments: list[str]) -> int:
    options, rest = _parser().parse_known_args(started(arguments))
    train.parse(rest)  # a wrong option is told before any file is read
    if not options.solver:
        raise ConfigError("--solver: name the solver file; see --help")
    flags = SpeedoFlags(**{name: value for name, value in _given(options).items() if value is not None})
    environment = environment_of(flags, options.host or "", options.port or 0, options.master or "")
    solver = read_solver(flags.solver)
    own_code = _own_code(solver.net) if solver.net else ""
    if not flags.max_iter and options.master:
        flags = SpeedoFlags(**{**_given_values(flags), "max_iter": 1})  # the master knows
    words, lines = translated(flags, solver, own_code)
    words = _without(words, rest) + rest
    if not options.master:
        print(f"paceline: the same as: paceline train {shlex.join(words)}", file=sys.stderr)
        for line in lines:
            print(f"paceline: {line}", file=sys.stderr)
    os.environ.update(environment)
    return train.main(words)


def _parser() -> Parser:
    parser = Parser(prog="paceline speedo", usage="paceline speedo [options]", description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("--solver", metavar="FILE", help="Caffe's solver, which names the net; or a strategy")
    add("--worker", type=int, metavar="N", help="workers to wait for, or to start here (default: 1)")
    add("--maxIter", type=int, dest="max_iter", metavar="M", help="merges after which the run ends")
    add("--test", type=int, metavar="M", help="merges between two tests; 0: none")
    add("--train", type=int, metavar="B", help="mini-batches between two exchanges (default: 1)")
    add("--sync", action="store_true", default=None, help="all workers make one merge together")
    add("--maxAdvance", type=int, dest="max_advance", metavar="N", help="partially synchronous")
    add("--weedout", type=int, metavar="N", help="drop late updates: window of N reports")
    add("--movingRate", type=float, dest="moving_rate", metavar="A", help="elastic averaging")
    add("--hybrid", nargs="+", action="extend", metavar="=FLAG", help="phases: =maxIter 100 =sync == =maxIter 200")
    add("--gradientOnly", action="store_true", default=None, dest="gradient_only", help="send gradients")
    add("--factor", type=float, metavar="F", help="the servers divide what workers send by F")
    add("--lr", type=float, metavar="R", help="learning rate, over the solver's")
    add("--momentum", type=float, metavar="R", help="momentum, over the solver's")
    add("--weightDecay", type=float, dest="weight_decay", metavar="R", help="weight decay, over the solver's")
    add("--batch", type=int, metavar="N", help="samples of a mini-batch, over the net's")
    add("--device", type=int, metavar="I", help="GPU; -1: CPU")
    add("--host", metavar="IP", help="address of this process")
    add("--port", type=int, metavar="P", help="the master waits there for its workers")
    add("--master", metavar="PATH", help="this is a worker: the master's Akka address, or HOST:PORT")
    switches = ("debug", "CPUDBActor", "doublePrecision")
    for name in [*WITHOUT_EFFECT, *REFUSED, "drop"]:
        kind: dict[str, Any] = {"action": "store_true"} if name in switches else {"metavar": "X"}
        add(f"--{name}", dest=f"other.{name}", help=argparse.SUPPRESS, **kind)
    return parser


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the flags by the fields of SpeedoFlags."""
    named = {name: getattr(options, name, None) for name in SpeedoFlags.__dataclass_fields__ if name != "others"}
    others = {name.partition(".")[2]: value for name, value in vars(options).items() if name.startswith("other.")}
    hybrid = tuple(named["hybrid"]) if named["hybrid"] else None
    return {**named, "hybrid": hybrid, "others": others}


def _given_values(flags: SpeedoFlags) -> dict[str, Any]:
    return {name: getattr(flags, name) for name in SpeedoFlags.__dataclass_fields__}


def _without(words: list[str], rest: list[str]) -> list[str]:
    """Returns `words` without the options that the user gives in Paceline's own words, which win."""
    left, taken = list[str](), {word.partition("=")[0] for word in rest if word.startswith("--")}
    pairs = zip(words[::2], words[1::2], strict=True)
    for name, value in pairs:
        left += [] if name in taken else [name, value]
    return left


def _own_code(net: Path) -> str:
    """Writes the file by which all processes find the net; returns its path, which depends on the net's alone."""
    path = FOLDER / f"{re.sub(r'[^a-zA-Z0-9]+', '_', str(net)).strip('_')}.py"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(CODE.format(net=str(net)), "utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
    return str(path)
