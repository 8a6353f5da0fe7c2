"""Looks for the alerts of a run without a page, for `--alert-hook` without `--watch`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from paceline.observe.watch.panels.alerts import CommandHook
from paceline.observe.watch.reader import LOOK_S, Reader

LINGER_S = 2.0
"""Seconds for which it goes on after its owner has gone: the end of the run may be an alert."""


def watch_alerts(run: Path, hook: Sequence[str], *, owner: BinaryIO | None = None) -> None:
    """Calls `hook` for each alert of the run, or of the newest of the runs, in that folder.

    Blocks until `owner`, a pipe, is closed at its other end; without one it never returns. A hook that fails, and a
    trace that cannot be read, are a line on standard error each.
    """

    def failed(line: str) -> None:
        """Says that the hook did not do what it should."""
        print(line, file=sys.stderr, flush=True)

    told_of = CommandHook(hook, lambda: str(reader.run), failed)
    reader = Reader(run, alerts=told_of, from_start=owner is not None)
    reader.begin()
    over, told = threading.Event(), ""
    if owner is not None:
        threading.Thread(target=_wait_for_end, args=(owner, over), daemon=True).start()
    while not over.wait(LOOK_S):
        if reader.problem != told:
            told = reader.problem
            failed(f"--alert-hook: {told}")
    over.clear()
    over.wait(LINGER_S)
    reader.close()


def _wait_for_end(owner: BinaryIO, over: threading.Event) -> None:
    """Sets `over` when the pipe to the owner is closed."""
    while owner.read(4096):
        pass
    over.set()
