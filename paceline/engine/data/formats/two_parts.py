"""Finds the two parts of a data set in a folder: what is trained on, and what is tested on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paceline.core.errors import ConfigError

TRAIN, TEST = ("train",), ("test", "val")
"""What the names of the parts hold."""


def two_parts(directory: str, what: str, fits: Callable[[Path], bool]) -> tuple[Path, Path]:
    """Returns the entry of the folder whose name holds `train`, and the one with `test` or `val`, among those that fit.

    what: names such an entry in errors, "an LMDB" for example. Raises ConfigError where there is none, or several.
    """
    folder = folder_of(directory, what)
    entries = sorted(entry for entry in folder.iterdir() if fits(entry))
    return _only(folder, entries, TRAIN, what), _only(folder, entries, TEST, what)


def folder_of(directory: str, what: str) -> Path:
    """Returns the folder that `--data-dir` names. Raises ConfigError if it names none."""
    if not directory:
        raise ConfigError(f"give --data-dir the folder with {what} to train on, and one to test on")
    folder = Path(directory).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"--data-dir {directory}: no such folder on this machine")
    return folder


def _only(folder: Path, entries: list[Path], words: tuple[str, ...], what: str) -> Path:
    found = [entry for entry in entries if any(word in entry.name.lower() for word in words)]
    if len(found) != 1:
        names = ", ".join(entry.name for entry in (found or entries)[:5]) or "nothing of the kind"
        raise ConfigError(
            f"{folder} should hold {what} with {' or '.join(map(repr, words))} in its name, once; it has {names}"
        )
    return found[0]
