"""`paceline train`: one model, one scheme, uneven workers, this machine."""

from __future__ import annotations

import argparse
import sys

from paceline.cli.options import Parser, add_settings, config_of
from paceline.cli.running import run_and_report
from paceline.cli.watch import add_watch, page
from paceline.launch.local import LocalHost
from paceline.launch.run import conductor_of, new_folder
from paceline.observe.progress import make_view

EPILOG = """examples:
  paceline train                                              4 workers, handwritten digits, ESync
  paceline train --scheme ssp --ssp.staleness 3 --slowdown 1,1,2,8 --step-ms 20
  paceline train --data fashion-mnist --data-dir DIR --model lenet --target-accuracy 0.8
  paceline train --scheme bsp --servers 0                     workers average instead of servers; see --mean

  paceline train --scheme bsp --slowdown 1,1,1,4 --step-ms 20 --watch         and a page that shows who holds whom up

  paceline train --out runs/a --checkpoint-every 60           a checkpoint a minute, and one at the end or at Ctrl-C
  paceline train --config runs/a/config.toml --out runs/a --resume auto       goes on after a crash

The run leaves config.toml, trace.jsonl, summary.json, model.safetensors, curve.png and checkpoints in --out; --config
reads such a config.toml again. Ctrl-C ends the run and keeps what there is; once more ends it at once.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Raises ConfigError."""
    parser = Parser(prog="paceline train", description=__doc__, epilog=EPILOG)
    add_settings(parser)
    add_watch(parser)
    return parser.parse_all(arguments)


def main(arguments: list[str]) -> int:
    namespace = parse(arguments)
    config = new_folder(config_of(namespace))
    with page(namespace.watch, config.run.out), LocalHost() as host:
        return run_and_report(conductor_of(config, host.crew(), make_view(sys.stderr)), config.run.out)
