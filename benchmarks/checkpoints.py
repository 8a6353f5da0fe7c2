"""A checkpoint whose writer is killed, or whose bytes are flipped, is never taken for another one.

300 times a child process that saves one checkpoint after the other is killed (SIGKILL) after a random time; what is
then loaded must be one that was saved, whole. 300 times one random byte of the newest one is flipped; it must be
refused, and the one before be taken. Exit code 1 when either fails once. What a checkpoint of a whole run holds is not
the subject here: this is the format alone.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
from pathlib import Path

from paceline.checkpoint.folder_store import FolderStore


def pieces(number: int, length: int) -> list[bytes]:
    return [bytes([number % 251]) * min(1 << 16, length - at) for at in range(0, length, 1 << 16)]


def save(folder: FolderStore, number: int, length: int) -> None:
    folder.save(number, {f"server-{s}.safetensors": pieces(number, length) for s in (0, 1)}, finite=True)


def whole(folder: FolderStore, number: int, length: int) -> bool:
    wanted = b"".join(pieces(number, length))
    return all(folder.load(number, entry) == wanted for entry in folder.verify(number).files)


def killed(root: Path, draw: random.Random, length: int) -> tuple[bool, bool]:
    """Is what is there afterwards whole; was the writer in the middle of a save?"""
    folder = FolderStore(root)
    save(folder, 1, length)
    child = os.fork()
    if child == 0:
        for number in range(2, 1_000_000):
            save(folder, number, length)
            folder.rotate(2)
        os._exit(0)
    threading.Event().wait(draw.uniform(0.0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    number, _ = folder.newest()
    half = len([path for path in root.iterdir() if not (path / "manifest.json").exists()]) > 0
    return number is not None and whole(folder, number, length), half


def flipped(folder: FolderStore, draw: random.Random) -> bool:
    """Was it noticed, and the one before taken?"""
    path = draw.choice(sorted(folder.place(2).iterdir()))
    before = path.read_bytes()
    at = draw.randrange(len(before))
    path.write_bytes(before[:at] + bytes([before[at] ^ draw.randrange(1, 256)]) + before[at + 1 :])
    number, refused = folder.newest()
    path.write_bytes(before)
    return number == 1 and len(refused) == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=300, help="kills, and flips (default: 300)")
    parser.add_argument("--kib", type=int, default=512, help="KiB of each of the two files (default: 512)")
    parser.add_argument("--seed", type=int, default=1, help="of the instants and the bytes (default: 1)")
    options = parser.parse_args()
    draw, length = random.Random(options.seed), options.kib << 10
    with tempfile.TemporaryDirectory(prefix="paceline-") as name:
        root = Path(name)
        outcomes = [killed(root / f"kill-{i}", draw, length) for i in range(options.n)]
        folder = FolderStore(root / "flips")
        save(folder, 1, length)
        save(folder, 2, length)
        noticed = sum(flipped(folder, draw) for _ in range(options.n))
    loaded, halves = sum(good for good, _ in outcomes), sum(half for _, half in outcomes)
    print(f"killed while saving: {loaded} of {options.n} load a whole one ({halves} left an unfinished one beside it)")
    print(f"one byte flipped:    {noticed} of {options.n} noticed, and the one before taken")
    return 0 if loaded == noticed == options.n else 1


if __name__ == "__main__":
    sys.exit(main())
