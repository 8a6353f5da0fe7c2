"""`--watch`: the page of a run beside the command that runs it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.cli.support.options import Parser

OWNED = "--until-stdin-closes"
"""The option of `paceline watch` with which the page ends when the command does."""


def add_watch(parser: Parser) -> None:
    """Adds `--watch`, for the verbs that run something."""
    parser.add_argument("--watch", action="store_true", help="show the active run on a page in the browser")


@contextmanager
def page(wanted: bool, run: str) -> Iterator[None]:
    """Shows the run in that folder on a page, in a process of its own, for as long as the context lasts.

    The page ends when its standard input closes, so it also ends if this process is killed. Waits for the first
    line of the page, which names its address; a page that cannot start prints a line and does not end the run.
    """
    if not wanted:
        yield
        return
    command = [sys.executable, "-m", "paceline", "watch", run, OWNED]
    # A session of its own, so that Ctrl-C ends the run and not the page that shows how it ended.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # Said before a table is drawn that nobody else should write into.
        print(process.stdout.readline().decode().rstrip() or "no page: it could not be started", file=sys.stderr)
        yield
    finally:
        process.stdin.close()
        print(f"`paceline watch {run}` shows the run again", file=sys.stderr)
