"""`paceline checkpoint list|verify PLACE` lists the checkpoints of a run, or verifies their checksums."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.checkpoint.base_store import CheckpointStore
from paceline.checkpoint.folder_store import CHECKPOINTS, FolderStore
from paceline.checkpoint.manifest import Damaged, Manifest
from paceline.checkpoint.redis_store import RedisStore
from paceline.checkpoint.redis_url import Address, StoreSecrets, is_store
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError

EPILOG = """examples:
  paceline checkpoint list runs/a
  paceline checkpoint verify runs/a || echo nothing to go on from
  paceline checkpoint list redis://stores.example:6379/0/a

PLACE is the folder of a run, its folder of checkpoints, or a run in a store. The password of a store is in
the environment, as PACELINE_REDIS_PASSWORD, or in the file that PACELINE_REDIS_PASSWORD_FILE names.

  list     a line for each: samples, accuracy, size, whether every file is whole and every number finite; and the best
  verify   the same; exit code 1 when there is none to go on from
"""


def main(arguments: list[str]) -> int:
    """Prints a line for each checkpoint; returns the exit code.

    `list` always returns 0. `verify` returns 1 where no checkpoint is whole and finite, so that a script can decide
    by it whether there is anything to go on from. Raises ConfigError where there are no checkpoints.
    """
    parser = Parser(
        prog="paceline checkpoint", usage="paceline checkpoint {list,verify} PLACE", description=__doc__, epilog=EPILOG
    )
    parser.add_argument("what", choices=("list", "verify"))
    parser.add_argument("folder", metavar="PLACE")
    options = parser.parse_all(arguments)
    try:
        shelf = _shelf(options.folder)
        numbers, best = shelf.numbers(), shelf.best()
        states = [_state(shelf, number) for number in numbers]
    except OSError as error:
        raise ConfigError(str(error.strerror)) from None
    marks = [", best" if number == best else "" for number in numbers]
    print("\n".join(f"{line}{mark}" for (line, _), mark in zip(states, marks, strict=True)))
    return 0 if options.what == "list" or any(healthy for _, healthy in states) else 1


def _shelf(place: str) -> CheckpointStore:
    """Raises ConfigError when there are none, OSError when a store is gone."""
    shelf: CheckpointStore
    if is_store(place):
        shelf = _store(place)
    else:
        root = Path(place)
        shelf = FolderStore(root / CHECKPOINTS if (root / CHECKPOINTS).is_dir() else root)
    if not shelf.numbers():
        hint = (
            "name the run, as the last part of its --out did"
            if is_store(place)
            else "name the folder that --out of a run named"
        )
        raise ConfigError(f"{place} has no checkpoints: {hint}")
    return shelf


def _store(place: str) -> RedisStore:
    """Returns the store at a redis:// address. Raises ConfigError for a malformed one, or one that names no run."""
    try:
        address = Address.parse(place)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not address.run:
        raise ConfigError(f"{address} names no run: give redis://host:port/db/RUN")
    return RedisStore(address, StoreSecrets.of(os.environ))


def _state(shelf: CheckpointStore, number: int) -> tuple[str, bool]:
    """Returns a line about checkpoint `number`, and whether a run may go on from it.

    Verifying reads every file and compares its SHA-256, so it takes as long as reading the checkpoint.
    """
    name = shelf.name(number)
    try:
        manifest = shelf.verify(number)
    except Damaged as error:
        return f"{name}  damaged: {error}", False
    return f"{name}  {_described(manifest)}", manifest.finite


def _described(manifest: Manifest) -> str:
    """Returns samples, accuracy, size and health of a checkpoint, as its manifest has them."""
    facts, size = manifest.facts, sum(entry.size for entry in manifest.files)
    accuracy = f", test accuracy {facts['accuracy']:.3f}" if "accuracy" in facts else ""
    health = "healthy" if manifest.finite else "not finite"
    return f"{facts.get('samples', 0):,} samples{accuracy}, {size / 1e6:.1f} MB, {health}"
