"""`paceline esync` takes the flags of ESync's `main.py`, trains, and writes ESync's logs."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from paceline.cli.commands.train import run_settings
from paceline.cli.support.options import Parser, add_settings, refuse_other_schemes, values_of
from paceline.compat.esync import log_writer
from paceline.compat.esync.flags import MODES, EsyncFlags, settings_of
from paceline.compat.esync.networks import NETWORKS
from paceline.config import build
from paceline.core.errors import ConfigError
from paceline.launch.external.detect import detect_external
from paceline.observe.formatting.number_format import counted
from paceline.observe.runs.run_folders import find

EPILOG = """examples:
  paceline esync -m esync -c 1 -n resnet18-v1 -ll 0.0005 -gl 1.0 -b 64 -e 1 -dd data --workers 4 --seconds 600
  paceline esync -m async -dcasgd 1 -c 1 -dd data --workers 4 --target-accuracy 0.8
  DMLC_ROLE=worker DMLC_NUM_WORKER=6 ... paceline esync -m esync -g 0      one part of a run, as ESync starts them

-dd holds a folder fashion-mnist, or cifar10 with -dt. Without DMLC_ROLE one command starts all --workers on this
machine. Every option of `paceline train` may follow. As in ESync a run has no end: give --seconds, --epochs or
--target-accuracy, or press Ctrl-C. Not here: -ip and -port, since a run has its own coordinator (they are ignored).
docs/migration-esync.md has a row for each flag.
"""
LONG = ("--batch-size", "--data-dir")
"""Flags that both commands have; here they are ESync's."""
WORKERS = 4


def main(arguments: list[str]) -> int:
    options = _parser().parse_all(_flags_only(arguments))
    given = values_of(options)
    flags = EsyncFlags(**_flags(options))
    external = detect_external(os.environ)
    workers = external.workers if external else given.get("cluster", {}).get("workers", WORKERS)
    values, lines = settings_of(flags, workers)
    for section, own in given.items():
        values[section] = {**values.get(section, {}), **own}
    if external is None:
        values["cluster"]["workers"] = 1 if flags.mode == "local" else workers
    for line in lines:
        print(f"paceline: {line}", file=sys.stderr)
    refuse_other_schemes(options, build(values))
    code, out = run_settings(values)
    if out and flags.mode != "local":
        _write_logs(Path(out), Path(flags.log_dir))
    return code


def _flags_only(words: list[str]) -> list[str]:
    """Returns the words without `python main.py` in front, so that a command may be pasted as it is."""
    left = words[1:] if words and words[0].startswith("python") else words
    return left[1:] if left and left[0].endswith("main.py") else left


def _parser() -> Parser:
    parser = Parser(prog="paceline esync", usage="paceline esync [options]", description=__doc__, epilog=EPILOG)
    group = parser.add_argument_group("ESync's flags")

    def add(*names: str, type: Any = str, help: str, dest: str) -> None:
        default = getattr(EsyncFlags(), dest)
        group.add_argument(
            *names, type=type, help=f"{help} (default: {default})", dest=dest, metavar=names[0].strip("-")
        )

    add("-m", "--mode", help=", ".join(MODES), dest="mode")
    add(
        "-l",
        "--learning-rate",
        type=float,
        help="modes sync, async, local: rate on the summed loss",
        dest="learning_rate",
    )
    add("-ll", "--local-lr", type=float, help="mode esync: rate on the summed loss", dest="local_lr")
    add("-gl", "--global-lr", type=float, help="mode esync: factor on the mean difference", dest="global_lr")
    add("-b", "--batch-size", type=int, help="samples in a step of one worker", dest="batch_size")
    add("-dd", "--data-dir", help="folder that holds fashion-mnist/", dest="data_dir")
    add("-g", "--gpu", type=int, help="number of the GPU", dest="gpu")
    add("-c", "--cpu", type=int, help="1: train on the CPU", dest="cpu")
    add("-n", "--network", help=", ".join(NETWORKS), dest="network")
    add("-ld", "--log-dir", help="folder for iter-1.txt, ... of each device", dest="log_dir")
    add("-e", "--eval-duration", type=int, help="rounds between two evaluations", dest="eval_duration")
    add("-dcasgd", "--use-dcasgd", type=int, help="1: mode async compensates delays", dest="use_dcasgd")
    add("-s", "--split-by-class", type=int, help="1: each worker has classes of its own", dest="split_by_class")
    add("-dt", "--data-type", help="fashion-mnist or cifar10", dest="data_type")
    add("-f", "--factor", type=int, help="1; other slow-downs: --slowdown", dest="factor")
    for name, long in (("-ip", "--state-server-ip"), ("-port", "--state-server-port")):
        group.add_argument(name, long, help="ignored: the run has its own coordinator", metavar=name.strip("-"))
    add_settings(parser, leave_out=[name.strip("-") for name in LONG])
    return parser


def _flags(options: Any) -> dict[str, Any]:
    """Returns the flags that were given, by the names of EsyncFlags."""
    names = (each.name for each in dataclasses.fields(EsyncFlags))
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _write_logs(out: Path, folder: Path) -> None:
    """Writes ESync's logs of the run in `out`, and says so. Raises ConfigError."""
    runs, _ = find([str(out)])
    try:
        count = log_writer.write(runs[0], folder)
    except OSError as error:
        raise ConfigError(f"-ld {folder}: cannot be written ({error.strerror})") from None
    print(f"paceline: {counted(count, 'round')} in {folder}/<device>/iter-N.txt", file=sys.stderr)
