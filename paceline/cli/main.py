"""`paceline VERB ...`: picks the verb, and turns errors into one line on standard error and an exit code.

    exit code   when
    0           done
    1           the run failed (PacelineError), or standard output could not be written
    2           wrong usage or settings (ConfigError), or no verb at all
    129         SIGHUP ended the run
    130         SIGINT (Ctrl-C) ended it
    143         SIGTERM ended it

`python -m paceline` and the installed command call `main`. A verb is a module of `cli/commands/` with a function
`main`; it is imported only when it is asked for, so that a verb without PyTorch answers at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from paceline import __version__
from paceline.cli.support.output import dropping_output, replacing_unprintable
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.registry import nearest
from paceline.observe.formatting.wrapping import terminal_width, wrapped
from paceline.observe.terminal.streams import discard

VERBS = {
    "train": "train one model on this machine under one scheme",
    "race": "train under several schemes in turn and see which one wins, and why",
    "simulate": "run train or race in virtual time, on a cluster that need not exist",
    "advise": "simulate all schemes on a cluster and recommend one",
    "probe": "measure your own machines and the links between them, for `advise` and `simulate`",
    "plot": "draw figures of finished runs, or write a report as one HTML file",
    "export": "convert the trace of a run for other tools: Perfetto, spreadsheets, TensorBoard",
    "watch": "show a run on a page in the browser: who holds whom up, and what that costs",
    "mxnet": "take a command line of MXNet's image classification examples as it is, and train",
    "launch": "start your own training script as several workers, on one or more machines",
    "status": "show the state of a run and of each of its processes",
    "grow": "add one or more workers to an active run",
    "kill": "end a run, on all its machines, and nothing else",
    "logs": "show what the processes of a run print",
    "attach": "show the output of a run that was started with --detach, and follow it",
    "replay": "replay a recorded run, and show the first decision that differs",
    "fuzz": "run schemes under random faults in virtual time and check invariants",
    "chaos": "train under real faults: processes are killed, stopped, slowed down, disconnected",
    "schemes": "list the schemes, or explain one: algorithm, when to use it, needs, parameters",
    "codecs": "list the codecs for gradient compression, or explain one",
    "bench": "measure exchanges, codecs and links of this machine against its limits",
    "summary": "print tables of finished runs, or JSON: speed, where the time went, bytes sent",
    "checkpoint": "list the checkpoints of a run, or verify them",
    "cite": "print a BibTeX entry for a scheme",
}

RUNS = ("train", "race", "simulate", "mxnet", "launch", "probe", "chaos", "fuzz")
"""Verbs of which the result is what they leave, not what they print."""

HELP = """usage: paceline VERB [options]

Trains one PyTorch model on machines that are not alike, under any published synchronisation scheme.

verbs:
{verbs}

`paceline VERB --help` says more. For example:

  paceline train --scheme esync --workers 4 --slowdown 1,1,2,8 --step-ms 20
  paceline race --schemes bsp,asp,gsp,esync --workers 4 --slowdown 1,1,2,8 --step-ms 20
  paceline simulate --schemes bsp,asp,esync --cluster two-generations --timing-only --seconds 600
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; `arguments` are its words (default: those of this process). Returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with replacing_unprintable():
        return _main(words)


def _main(words: list[str]) -> int:
    """Runs the command; a verb whose result is a folder goes on where nobody reads its output any more."""
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
    """Calls the verb; without one prints the help. Returns the exit code. Raises what the verb raises, and ConfigError
    for an unknown verb."""
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
