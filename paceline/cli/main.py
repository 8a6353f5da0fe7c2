"""`paceline VERB ...`: picks the verb, turns errors into one line and an exit code.

Exit codes: 0 done, 1 the run failed, 2 wrong usage, 130 and 143 ended by Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from paceline import __version__
from paceline.cli.support.output import dropping_output, replacing_unprintable
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.registry import nearest
from paceline.observe.terminal.streams import discard
from paceline.observe.terminal.wrapping import terminal_width, wrapped

VERBS = {
    "train": "train one model on this machine under one scheme",
    "race": "train under several schemes in turn and see which one wins, and why",
    "simulate": "the same as train or race in virtual time, on a cluster you need not have",
    "advise": "which scheme suits a cluster, what is known of that, and what is not",
    "plot": "finished runs in figures, or as a report of one HTML file",
    "export": "the trace of a run for other tools: Perfetto, spreadsheets",
    "watch": "a run on a page in the browser: who holds whom up, and what that costs",
    "launch": "start a training script of your own as several workers",
    "status": "how a run stands: its state, who takes part, what was heard of them last",
    "grow": "one more worker, or several, for a run that goes on",
    "kill": "end a run, on all its machines, and nothing else",
    "logs": "what the parties of a run have printed, and print",
    "fuzz": "every scheme under everything that can go wrong, in virtual time, watched by invariants",
    "chaos": "a real run under real faults: processes killed, stopped, slowed down, cut off",
    "schemes": "the catalogue; of each scheme algorithm, when to use it, what it needs, parameters",
    "codecs": "ways of sending fewer bytes; of each what it does, when to use it, parameters",
    "bench": "what this machine reaches, against what it allows",
    "summary": "finished runs in tables, or as JSON: who was sooner, where the time went, what was sent",
    "checkpoint": "what a run has kept to go on from, and whether it is whole",
    "cite": "how to cite a scheme",
}

RUNS = ("train", "race", "simulate", "launch", "chaos", "fuzz")
"""Verbs of which the result is what they leave, not what they print."""

HELP = """usage: paceline VERB [options]

Trains one PyTorch model on machines that are not alike, under any published synchronisation scheme.

verbs:
{verbs}

`paceline VERB --help` tells more. For example:

  paceline train --scheme esync --workers 4 --slowdown 1,1,2,8 --step-ms 20
  paceline race --schemes bsp,asp,gsp,esync --workers 4 --slowdown 1,1,2,8 --step-ms 20
  paceline simulate --schemes bsp,asp,esync --cluster two-generations --timing-only --seconds 600
"""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    with replacing_unprintable():
        return _main(words)


def _main(words: list[str]) -> int:
    if words and words[0] in RUNS:
        with dropping_output():
            return _run(words)
    return _run(words)


def _run(words: list[str]) -> int:
    """Carries the command out, and tells its errors; returns the exit code."""
    try:
        return _flushed(_dispatch(words))
    except ConfigError as error:
        print(f"paceline: {error}", file=sys.stderr)
        return 2
    except PacelineError as error:
        print(f"paceline: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before a run has begun, which hears of it itself
        print("paceline: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output has left, as `| head` does
        discard(sys.stdout)
        return 1


def _flushed(code: int) -> int:
    """Writes what standard output still buffers, so that a failure is handled here and not when the interpreter exits.

    Returns `code`, or 1 where the output cannot be written. Raises BrokenPipeError.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"paceline: standard output: {error.strerror}", file=sys.stderr)
        discard(sys.stdout)
        return code or 1
    return code


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        verbs = "\n".join(f"  {verb:<10}  {text}" for verb, text in VERBS.items())
        print(wrapped(HELP.format(verbs=verbs), terminal_width()))
        return 0 if words else 2
    if words[0] == "--version":
        print(f"paceline {__version__}")
        return 0
    if words[0] not in VERBS:
        raise ConfigError(f"unknown verb {words[0]!r}{nearest(words[0], VERBS)}")
    try:
        return int(importlib.import_module(f"paceline.cli.commands.{words[0]}").main(words[1:]))
    except SystemExit as end:  # argparse after --help
        return int(end.code or 0)
