"""Passes orders of a person from the live page to the process that leads the run, as files in RUN/orders.

    paceline watch --control           post: orders/.NAME.draft, then renamed to orders/NAME.json
    the supervisor, four times a second take: reads and removes what is there, the oldest first

Only files of the user who leads the run count, since whoever can write into the folder of a run could be somebody else.
What was left by an earlier run in the same folder is removed at the beginning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from paceline.core.coordination.operator_orders import OperatorOrder
from paceline.core.errors import ConfigError

FOLDER = "orders"
BYTES_MAX = 4096
"""Bytes of an order; a larger file is none."""


class OrderFolder:
    """Is the folder with the orders of one run."""

    def __init__(self, run: Path, say: Callable[[str], None] = lambda line: None) -> None:
        """`say` is told, in a line, of a file that is no order."""
        self._path, self._say = run / FOLDER, say

    def post(self, order: OperatorOrder) -> None:
        """Leaves an order for the process that leads the run. Raises ConfigError if the folder cannot be written."""
        name = f"{time.monotonic_ns():020d}-{secrets.token_hex(4)}"
        draft = self._path / f".{name}.draft"
        try:
            self._path.mkdir(mode=0o700, exist_ok=True)
            draft.write_text(json.dumps(dataclasses.asdict(order)), encoding="utf-8")
            os.replace(draft, self._path / f"{name}.json")
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}; the order was not given") from None

    def take(self) -> list[OperatorOrder]:
        """Returns the orders that have come, and removes them."""
        return [order for path in self._waiting() if (order := self._read(path)) is not None]

    def clear(self) -> None:
        """Removes what is there: it was meant for another run."""
        for path in self._waiting():
            with contextlib.suppress(OSError):
                path.unlink()

    def _waiting(self) -> list[Path]:
        """Returns the files of orders, the oldest first."""
        try:
            names = os.listdir(self._path)
        except OSError:  # most runs have no such folder
            return []
        return [self._path / name for name in sorted(names) if name.endswith(".json")]

    def _read(self, path: Path) -> OperatorOrder | None:
        """Returns the order of a file, which is removed; None for a file that is none."""
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(descriptor, "rb") as file:
                told = os.fstat(file.fileno())
                own = not hasattr(os, "getuid") or told.st_uid == os.getuid()
                text = file.read(BYTES_MAX + 1) if own and stat.S_ISREG(told.st_mode) else b""
            path.unlink()
            if not own:
                raise ValueError("it is another user's")
            if len(text) > BYTES_MAX:
                raise ValueError("it is too long")
            fields = json.loads(text)
            if not isinstance(fields, dict):
                raise ValueError("it is no object")
            return OperatorOrder(**fields)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            with contextlib.suppress(OSError):
                path.unlink()
            self._say(f"{path}: no order of the operator: {error}")
            return None
