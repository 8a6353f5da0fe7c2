"""Passes orders of a person from the live page to the process that leads the run, as files in RUN/orders.

    paceline watch --control           post: orders/.NAME.draft, then renamed to orders/NAME.json
    the supervisor, four times a second take: reads and removes what is there, the oldest first

Only a folder and files of the user who leads the run count, which nobody else can write: who can write into the folder
of a run could be somebody else.
What was left by an earlier run in the same folder is removed at the beginning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from paceline.core.coordination.operator_orders import OperatorOrder
from paceline.core.errors import ConfigError
from paceline.core.files.own_path import is_own

FOLDER = "orders"
BYTES_MAX = 4096
"""Bytes of an order; a larger file is none."""


class OrderFolder:
    """Is the folder with the orders of one run."""

    def __init__(self, run: Path, say: Callable[[str], None] = lambda line: None) -> None:
        """`say` is told, in a line, of a file that is no order."""
        self._path, self._say = run / FOLDER, say
        self._refused = False  # a line has said that the folder is not one that counts

    def post(self, order: OperatorOrder) -> None:
        """Leaves an order for the process that leads the run. Raises ConfigError if the folder cannot be written."""
        name = f"{time.monotonic_ns():020d}-{secrets.token_hex(4)}"
        try:
            self._path.mkdir(mode=0o700, exist_ok=True)
            with self._opened() as folder:
                draft = os.open(f".{name}.draft", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
                with open(draft, "w", encoding="utf-8") as file:
                    json.dump(dataclasses.asdict(order), file)
                os.replace(f".{name}.draft", f"{name}.json", src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}; the order was not given") from None

    def take(self) -> list[OperatorOrder]:
        """Returns the orders that have come, and removes them."""
        try:
            with self._opened() as folder:
                return [order for name in _waiting(folder) if (order := self._read(folder, name)) is not None]
        except FileNotFoundError:  # most runs have no such folder
            return []
        except OSError as error:
            if not self._refused:
                self._refused = True
                self._say(f"{self._path}: orders of the operator are not read: {error.strerror}")
            return []

    def clear(self) -> None:
        """Removes what is there: it was meant for another run."""
        with contextlib.suppress(OSError), self._opened() as folder:
            for name in _waiting(folder):
                os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Opens the folder, by whose descriptor all its files are reached. Raises OSError.

        A link would have the files of another folder read and removed. Who may write into the folder may put any file
        of this user's there.
        """
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if not is_own(os.fstat(folder)):
                raise PermissionError(errno.EACCES, "others may write into it", str(self._path))
            yield folder
        finally:
            os.close(folder)

    def _read(self, folder: int, name: str) -> OperatorOrder | None:
        """Returns the order of a file, which is removed; None for a file that is none."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                told = os.fstat(file.fileno())
                own = is_own(told)
                text = file.read(BYTES_MAX + 1) if own and stat.S_ISREG(told.st_mode) else b""
            os.unlink(name, dir_fd=folder)
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
                os.unlink(name, dir_fd=folder)
            self._say(f"{self._path / name}: no order of the operator: {error}")
            return None


def _waiting(folder: int) -> list[str]:
    """Returns the names of the files of orders, the oldest first."""
    return [name for name in sorted(os.listdir(folder)) if name.endswith(".json")]
