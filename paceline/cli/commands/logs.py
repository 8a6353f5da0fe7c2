"""`paceline logs` shows what the processes of a run print, each line behind the name of its process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from paceline.cli.commands.status import GONE, state_of
from paceline.cli.support.find_run import add_run, found, where_it_is_led
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError
from paceline.core.files.regular_file import open_regular
from paceline.core.registry import nearest
from paceline.runtime.run_folder.status_file import read_status

EPILOG = """examples:
  paceline logs                                   the newest run below runs/
  paceline logs runs/a --party worker-3           may be given several times
  paceline logs runs/a --tail 20 -f               the last 20 lines of each, and what comes until the run ends

What is there: what scripts print, what workers and servers print, and what -v and -vv tell. Of `paceline train` on
other machines it comes when a party has ended.
"""
LOOK_SECONDS = 0.3
"""Seconds between two looks at the files, with `-f`."""
CHUNK_BYTES = 1 << 20
"""Bytes that are read of a file at a time."""


@where_it_is_led
def main(arguments: list[str]) -> int:
    """Prints the logs of a run, with `-f` until it has ended; returns 0.

    Raises ConfigError for a party that has printed nothing, with the name that comes nearest to it.
    """
    parser = Parser(prog="paceline logs", usage="paceline logs [RUN] [options]", description=__doc__, epilog=EPILOG)
    add_run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the run has ended")
    parser.add_argument(
        "--party", metavar="NAME", action="append", default=[], help="worker-3, server-0, evaluator, ..."
    )
    parser.add_argument("--tail", metavar="N", help="only the last N lines of each process (default: all)")
    options = parser.parse_all(arguments)
    folder = found(options.run)
    if options.tail is not None and not options.tail.isdecimal():
        raise ConfigError(f"--tail {options.tail}: a number of lines")
    parties = [name.replace(" ", "-") for name in options.party]
    logs = Logs(folder / "logs", parties)
    last = None if options.tail is None else int(options.tail)
    with suppress(KeyboardInterrupt):  # the way to end it
        over = not _goes_on(folder)
        _print(logs.new(over=over), last)
        # Whether the run is over is asked before its files are read: what a process prints just before its end is then
        # read for certain.
        while options.follow and not over:
            threading.Event().wait(LOOK_SECONDS)
            over = not _goes_on(folder)
            _print(logs.new(over=over), None)
    if missing := [name for name in parties if name not in logs.seen]:
        raise ConfigError(_nothing(folder, missing[0], logs.there()))
    if not logs.anything():
        print(
            f"paceline: nobody has printed anything in {folder}; how the run stands: paceline status {folder}",
            file=sys.stderr,
        )
    return 0


def _goes_on(folder: Path) -> bool:
    """Returns True while the run may still print something."""
    status = read_status(folder)
    return not status.ended and state_of(status) != GONE


def _nothing(folder: Path, name: str, there: Sequence[str]) -> str:
    """Returns the error for a party that has printed nothing; `there` are those that have."""
    return f"{folder}: {name} has printed nothing" + (nearest(name, there) if there else "; nor has anybody else")


def _print(heard: Iterator[tuple[str, list[str]]], last: int | None) -> None:
    """Prints lines behind the name of their process; of each party only the `last` ones, if that is a number."""
    for name, lines in heard:
        for line in lines if last is None else lines[max(0, len(lines) - last) :]:
            print(f"[{name.replace('-', ' ')}] {line}")
    sys.stdout.flush()


class Logs:
    """Reads the files in a folder of logs, each on from where it was left.

    seen    bytes that were read of each party's file
    _torn   what stands behind the last line break: it is shown once the rest of the line has come, or the run is over
    """

    def __init__(self, folder: Path, parties: Sequence[str]) -> None:
        """`parties`: only these; all if there are none."""
        self._folder, self._parties = folder, parties
        self.seen: dict[str, int] = {}
        self._torn: dict[str, bytes] = {}

    def there(self) -> list[str]:
        """Returns the parties that have a file, by kind and number: worker-2 before worker-10."""
        return sorted((path.stem for path in self._folder.glob("*.log")), key=_in_order)

    def anything(self) -> bool:
        """Returns True if any file holds a single byte."""
        return any((self._folder / f"{name}.log").stat().st_size for name in self.there())

    def new(self, *, over: bool) -> Iterator[tuple[str, list[str]]]:
        """Yields each party with its new lines, in the order of ranks.

        over: the run has ended, so a last line without a line break is yielded, too.
        """
        for name in self.there():
            if not self._parties or name in self._parties:
                yield name, [*self._lines(name), *(self._last_words(name) if over else ())]

    def _lines(self, name: str) -> Iterator[str]:
        """Yields whole new lines. Bytes that are no UTF-8 are replaced, since a script may print anything."""
        with open_regular(self._folder / f"{name}.log") as file:
            file.seek(self.seen.get(name, 0))
            while chunk := file.read(CHUNK_BYTES):
                *lines, self._torn[name] = (self._torn.get(name, b"") + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
            self.seen[name] = file.tell()

    def _last_words(self, name: str) -> Iterator[str]:
        """Yields the unfinished last line of a party that was cut short."""
        if torn := self._torn.pop(name, b""):
            yield torn.decode(errors="replace")


def _in_order(name: str) -> tuple[str, int]:
    """Returns the key by which names of parties are sorted: kind, then number."""
    kind, _, index = name.partition("-")
    return kind, int(index) if index.isdecimal() else 0
