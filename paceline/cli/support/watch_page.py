"""`--watch` and `--alert-hook`: the page of a run, or its alerts alone, in a process beside the command."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError
from paceline.core.files.helper_command import helper_command

OWNED = "--until-stdin-closes"
"""The option of `paceline watch` with which the page ends when the command does."""
NO_PAGE = "--no-page"
"""The option of `paceline watch` with which it looks for alerts and serves nothing."""
CONTROL_HELP = "the page can expel and drain workers, add one, write a checkpoint, and change the learning rate"
HOOK_HELP = "run CMD TEXT, with a line of JSON as its input, when an alert begins and when it is over"


def add_watch(parser: Parser) -> None:
    """Adds `--watch` alone, for a verb whose run nobody can still change."""
    parser.add_argument("--watch", action="store_true", help="show the active run on a page in the browser")


def add_live_watch(parser: Parser) -> None:
    """Adds `--watch`, `--control` and `--alert-hook`, for the verbs that run something on real machines."""
    add_watch(parser)
    add_control(parser)
    add_alert_hook(parser)


def add_control(parser: Parser) -> None:
    """Adds `--control`."""
    parser.add_argument("--control", action="store_true", help=CONTROL_HELP)


def add_alert_hook(parser: Parser) -> None:
    """Adds `--alert-hook`."""
    parser.add_argument("--alert-hook", default="", metavar="CMD", help=HOOK_HELP)


def also(options: argparse.Namespace, others: argparse.Namespace) -> None:
    """Adds what `others`, the options of a command behind the first one, say about the page. Raises ConfigError."""
    options.watch |= others.watch
    options.control |= others.control
    if options.alert_hook and others.alert_hook:
        raise ConfigError("--alert-hook is given twice: give it once")
    options.alert_hook = options.alert_hook or others.alert_hook


def hook_words(command: str) -> list[str]:
    """Returns the words of a hook. Raises ConfigError where its program is not there."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--alert-hook {command}: {error}") from None
    if words and shutil.which(words[0]) is None:
        raise ConfigError(f"--alert-hook {words[0]}: there is no such program")
    return words


def check_page(options: argparse.Namespace) -> None:
    """Raises ConfigError for a hook that cannot be run, and for controls without a page."""
    hook_words(getattr(options, "alert_hook", ""))
    if getattr(options, "control", False) and not options.watch:
        raise ConfigError("--control: the controls are on the page; give --watch too")


@contextmanager
def page(options: argparse.Namespace, run: str) -> Iterator[None]:
    """Shows the run in that folder on a page, or looks for its alerts, for as long as the context lasts.

    The page is a process of its own. It ends when its standard input closes, so it also ends if this process is
    killed. Waits for its first line, which names its address; a page that cannot start prints a line and does not end
    the run. Raises ConfigError as `check_page` does.
    """
    hook, control = getattr(options, "alert_hook", ""), getattr(options, "control", False)
    check_page(options)
    if not (options.watch or hook):
        yield
        return
    command = helper_command("paceline", "watch", run, OWNED)
    command += ["--alert-hook", hook] if hook else []
    command += ["--control"] if control else []
    command += [] if options.watch else [NO_PAGE]
    # A session of its own, so that Ctrl-C ends the run and not the page that shows how it ended.
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if options.watch else None,  # the page says which hook has failed
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # Said before a table is drawn that nobody else should write into.
        print(process.stdout.readline().decode().rstrip() or "no page: it could not be started", file=sys.stderr)
        yield
    finally:
        process.stdin.close()
        if options.watch:
            print(f"`paceline watch {run}` shows the run again", file=sys.stderr)
