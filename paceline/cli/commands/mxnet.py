"""`paceline mxnet` takes a command line of MXNet's image classification examples as it is, and trains."""

from __future__ import annotations

import importlib
import os
import shlex
import sys

from paceline.compat.mxnet.scripts.command_line import taken_apart
from paceline.compat.mxnet.scripts.translation import translated
from paceline.observe.formatting.wrapping import terminal_width, wrapped

HELP = """usage: paceline mxnet [options] [launch.py ...] [python] SCRIPT ...

Takes a command line of MXNet's or MXNet-G's image classification examples as it is, and trains.

SCRIPT is train_mnist.py, train_cifar10.py or train_imagenet.py, with its own flags; the file itself is not needed.
`launch.py -n N -s S ...` may stand before it. Options of `paceline train` come first. The first line that is printed is
the same command in Paceline's words. A flag that is not rebuilt is named in one line.

examples:
  paceline mxnet python train_mnist.py --network lenet --num-epochs 5
  paceline mxnet ../../tools/launch.py -n 2 -s 2 --launcher local python train_mnist.py --kv-store dist_sync
  paceline mxnet --slowdown 1,1,3 --step-ms 30 launch.py -n 3 --launcher local train_mnist.py --kv-store dist_async
  ../../tools/launch.py -n 2 -s 2 --launcher local paceline mxnet train_mnist.py --kv-store dist_sync

docs/migration-mxnet.md has a row for each flag.
"""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(wrapped(HELP, terminal_width()))
        return 0 if arguments else 2
    translation = translated(taken_apart(arguments), os.environ)
    if os.environ.get("DMLC_ROLE", "scheduler") == "scheduler":  # one of several processes says it for all
        print(f"paceline: the same as: paceline {shlex.join(translation.words)}", file=sys.stderr)
        if translation.without:
            print(f"paceline: without effect: {', '.join(translation.without)}", file=sys.stderr)
    verb, *words = translation.words
    return int(importlib.import_module(f"paceline.cli.commands.{verb}").main(words))
