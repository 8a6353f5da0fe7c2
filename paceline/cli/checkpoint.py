"""`paceline checkpoint list|verify DIR`: what a run has kept, and whether all of it is as it was written."""

from __future__ import annotations

from pathlib import Path

from paceline.checkpoint.folder import CHECKPOINTS, Folder
from paceline.checkpoint.manifest import Damaged, Manifest
from paceline.cli.options import Parser
from paceline.core.errors import ConfigError

EPILOG = """examples:
  paceline checkpoint list runs/a
  paceline checkpoint verify runs/a || echo nothing to go on from

DIR is the folder of a run, or its folder of checkpoints.

  list     a line for each: samples, accuracy, size, whether every file is whole and every number finite; and the best
  verify   the same; exit code 1 when there is none to go on from
"""


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="paceline checkpoint", usage="paceline checkpoint {list,verify} DIR", description=__doc__, epilog=EPILOG
    )
    parser.add_argument("what", choices=("list", "verify"))
    parser.add_argument("folder", metavar="DIR")
    options = parser.parse_all(arguments)
    folder = _folder(options.folder)
    states, best = [_state(folder, number) for number in folder.numbers()], folder.best()
    marks = [", best" if number == best else "" for number in folder.numbers()]
    print("\n".join(f"{line}{mark}" for (line, _), mark in zip(states, marks, strict=True)))
    return 0 if options.what == "list" or any(healthy for _, healthy in states) else 1


def _folder(path: str) -> Folder:
    """Raises ConfigError when there are none."""
    root = Path(path)
    folder = Folder(root / CHECKPOINTS if (root / CHECKPOINTS).is_dir() else root)
    if not folder.numbers():
        raise ConfigError(f"{path} has no checkpoints: name the folder that --out of a run named")
    return folder


def _state(folder: Folder, number: int) -> tuple[str, bool]:
    """A line about it, and whether a run may go on from it."""
    try:
        manifest = folder.verify(number)
    except Damaged as error:
        return f"{folder.place(number)}  damaged: {error}", False
    return f"{folder.place(number)}  {_described(manifest)}", manifest.finite


def _described(manifest: Manifest) -> str:
    facts, size = manifest.facts, sum(entry.size for entry in manifest.files)
    accuracy = f", test accuracy {facts['accuracy']:.3f}" if "accuracy" in facts else ""
    health = "healthy" if manifest.finite else "not finite"
    return f"{facts.get('samples', 0):,} samples{accuracy}, {size / 1e6:.1f} MB, {health}"
