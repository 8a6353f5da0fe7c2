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

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from paceline import __version__
from paceline.cli.support.output import dropping_output, open_standard_streams, replacing_unprintable
from paceline.core.errors import ConfigError, PacelineError
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
    "esync": "train with the flags of ESync's main.py, and write its logs",
    "speedo": "take a command line of SpeeDO as it is, with solver and net files of Caffe, and train",
    "theanompi": "start a session of Theano-MPI: its launch_session.cfg and the flags of tmlauncher",
    "cite": "print a BibTeX entry for a scheme",
}

FORKING = ("train", "race")
"""Verbs that need a fork server, which is started before the verb itself is imported."""
RUNS = ("train", "race", "simulate", "mxnet", "esync", "speedo", "theanompi", "launch", "probe", "chaos", "fuzz")
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
    try:
        with replacing_unprintable():
            return _main(list(sys.argv[1:] if arguments is None else arguments))
    finally:
        if arguments is None:
            gc.freeze()  # Python's last look for garbage took a tenth of a short command


def _main(words: list[str]) -> int:
    """Runs the command; a verb whose result is a folder goes on where nobody reads its output any more."""
    starts = bool(words) and words[0] in RUNS
    if not starts and sys.stdout is None:
        print("paceline: standard output is closed, and this command writes its answer there", file=sys.stderr)
        return 2
    open_standard_streams()
    if not starts:
        return _run(words)
    with dropping_output():
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
        _print_help()
        return 0 if words else 2
    if words[0] == "--version":
        print(f"paceline {__version__}")
        return 0
    if words[0] not in VERBS:
        from paceline.core.registry import nearest

        raise ConfigError(f"unknown verb {words[0]!r}{nearest(words[0], VERBS)}")
    if words[0] in RUNS and not _has_current_folder():
        raise ConfigError("the current folder was deleted: change to one that exists")
    try:
        if words[0] in FORKING:
            return _call_with_fork_server(words)
        return int(_verb(words[0]).main(words[1:]))
    except SystemExit as end:  # argparse after --help
        return int(end.code or 0)


def _has_current_folder() -> bool:
    """Returns True unless the current folder was deleted; PyTorch cannot be imported in such a one."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _print_help() -> None:
    """Prints the help of the command without a verb."""
    from paceline.observe.formatting.wrapping import terminal_width, wrapped

    verbs = "\n".join(f"  {verb:<10}  {text}" for verb, text in VERBS.items())
    print(wrapped(HELP.format(verbs=verbs), terminal_width()))


def _verb(name: str) -> Any:
    """Imports the module of a verb and returns it; without looking for garbage, as what is imported stays."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(f"paceline.cli.commands.{name}")
    finally:
        if collects:
            gc.enable()


def _call_with_fork_server(words: list[str]) -> int:
    """Calls a verb that makes runs of its own, for which it starts the fork server first. Returns the exit code."""
    from paceline.launch.local.fork_server_process import ForkServerProcess, is_needed

    if not is_needed(words[1:], os.environ):
        return int(_verb(words[0]).main(words[1:]))
    with ForkServerProcess(warm=True) as process:
        return int(_verb(words[0]).main(words[1:], process))
