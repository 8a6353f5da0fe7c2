"""`paceline attach` shows what a run that was started with --detach prints, from its beginning, and follows it."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from paceline.cli.commands.status import GONE, state_of
from paceline.cli.support.find_run import add_run, found, where_it_is_led
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError
from paceline.core.files.regular_file import open_regular
from paceline.launch.detached.leader import CONSOLE
from paceline.runtime.run_folder.status_file import FAILED, Status, read_status

EPILOG = """examples:
  paceline attach                  the newest run below runs/
  paceline attach runs/a           its output from the beginning, and on until it ends
  paceline attach a --tail 20      the last 20 lines, and what follows

Ctrl-C leaves the run running. Several terminals may look at one run. The exit code is 0 when the run ended well or was
left running, and 1 when it failed or the process that leads it was killed.
"""
LOOK_SECONDS = 0.2
LAST_WORDS_SECONDS = 20.0
"""A run that says it is over still writes its report, and its process ends."""
CHUNK = 1 << 20  # characters
TAIL_BYTES = 16 << 20


@where_it_is_led
def main(arguments: list[str]) -> int:
    parser = Parser(prog="paceline attach", usage="paceline attach [RUN] [options]", description=__doc__, epilog=EPILOG)
    add_run(parser)
    parser.add_argument("--tail", metavar="N", help="begin with the last N lines (default: with the first)")
    options = parser.parse_all(arguments)
    if options.tail is not None and not options.tail.isdecimal():
        raise ConfigError(f"--tail {options.tail}: a number of lines")
    folder = found(options.run)
    console = folder / CONSOLE
    if not console.is_file():
        raise ConfigError(
            f"{folder} was not started with --detach: its output is on the terminal that started it; "
            f"`paceline logs -f {folder}` and `paceline watch {folder}` show it too"
        )
    position = 0 if options.tail is None else start_of_last_lines(console, int(options.tail))
    with suppress(KeyboardInterrupt):
        return _follow(folder, console, position)
    print(f"\n{folder} goes on; `paceline kill {folder}` ends it", file=sys.stderr)
    return 0


def start_of_last_lines(console: Path, lines: int) -> int:
    """Returns the byte at which the last `lines` lines of the file begin; of its last TAIL_BYTES, at most."""
    with open_regular(console) as file:
        begin = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
        file.seek(begin)
        content = file.read()
    position = len(content)
    for _ in range(lines):
        if position == 0:
            break
        position = content.rfind(b"\n", 0, position - 1) + 1
    return begin + position


def _follow(folder: Path, console: Path, position: int) -> int:
    """Prints the file from `position` on until the run is over. Returns the exit code."""
    with io.TextIOWrapper(open_regular(console), encoding="utf-8", errors="replace", newline="") as file:
        file.seek(position)
        ending = 0.0
        while True:
            status = read_status(folder)  # before the file: what was printed before the end is then read after it
            while chunk := file.read(CHUNK):
                sys.stdout.write(chunk)
            sys.stdout.flush()
            if _is_over(status):
                ending = ending or time.monotonic() + LAST_WORDS_SECONDS
                if not status.here or time.monotonic() > ending:
                    return _outcome(folder, status)
            threading.Event().wait(LOOK_SECONDS)


def _is_over(status: Status) -> bool:
    return status.ended or state_of(status) == GONE


def _outcome(folder: Path, status: Status) -> int:
    """Says what the file does not: that the process was killed. Returns the exit code."""
    if state_of(status) == GONE:
        print(
            f"paceline: {folder}: the process that led it, {status.pid}, was killed; a run with checkpoints goes on by "
            "the same command with --resume auto",
            file=sys.stderr,
        )
        return 1
    return 1 if status.state == FAILED else 0
