"""Checks, before a run goes on from a checkpoint, that everybody will be able to read what is in it.

Sizes and checksums are right by then, and so are the manifest's own facts (`paceline.checkpoint.manifest_facts`).
Every file names the checkpoint that it belongs to, as the manifest does: files of two checkpoints under a manifest
with the checksums of both are refused. Files that older versions have written name none.

Whether the tensors fit the model is checked where the model is made.
"""

from __future__ import annotations

import base64
import binascii
import random
from collections.abc import Callable, Mapping
from typing import Any

from safetensors import SafetensorError, safe_open

from paceline.checkpoint.folder_store import MODEL, FolderStore
from paceline.checkpoint.manifest import Damaged, FileEntry, Manifest
from paceline.checkpoint.manifest_facts import check as check_facts
from paceline.checkpoint.manifest_facts import count, done, kept, number, numbers, pieces_of_shares
from paceline.checkpoint.strict_json import decoded

OPTIMIZER = "optimizer.safetensors"
"""The file with the vectors of the optimizer, where servers or workers together have one."""
CHECKPOINT_ID = "checkpoint_id"
"""A key in the facts of the manifest and of a worker, and in the metadata of a safetensors file; its value is drawn for
each checkpoint."""
JSON_BYTES_MAX = 1 << 24
"""The longest JSON file of a worker that is read."""
GENERATORS_MAX = 256
"""The most states of random number generators of one worker, which may be of several processes."""
RANDOM_VERSION = 3
"""The version of the state of Python's `random.Random`."""


def worker_names(rank: int) -> tuple[str, str]:
    """Returns the names of the files with a worker's state: in JSON, and in tensors."""
    return f"worker-{rank:05d}.json", f"worker-{rank:05d}.safetensors"


def check(folder: FolderStore, at: int, manifest: Manifest) -> None:
    """Raises Damaged, naming the file and what is wrong with it.

    A checkpoint has a model, numbers for its optimizer, and, if its manifest names a leading worker, that worker's
    common state.
    """
    names = {entry.name for entry in manifest.files}
    if MODEL not in names:
        raise Damaged(f"it has no {MODEL}")
    if (OPTIMIZER in names or "lead" in manifest.facts) and "numbers" not in manifest.facts:
        raise Damaged("manifest: it has no 'numbers', which an optimizer needs")
    said: dict[str, dict[str, Any]] = {}
    for entry in manifest.files:
        if entry.name.endswith(".safetensors"):
            found = _metadata(folder, at, entry)
        elif entry.name.endswith(".json"):
            found = said[entry.name] = remembered(folder, at, entry)
        else:
            continue
        if found.get(CHECKPOINT_ID) != manifest.facts.get(CHECKPOINT_ID):
            raise Damaged(f"{folder.name(at, entry.name)}: it is of another checkpoint than the manifest")
    if "lead" in manifest.facts:
        name, _ = worker_names(manifest.facts["lead"])
        if "common" not in said.get(name, {}):
            raise Damaged(f"it has no {name} with what is common, although its manifest names it")


def remembered(folder: FolderStore, at: int, entry: FileEntry) -> dict[str, Any]:
    """Reads a worker's state from JSON. Raises Damaged."""
    if entry.size > JSON_BYTES_MAX:
        raise Damaged(f"{folder.name(at, entry.name)}: longer than {JSON_BYTES_MAX} bytes")
    data = folder.load(at, entry)
    try:
        return _facts_of_worker(decoded(data))
    except ValueError as error:
        raise Damaged(f"{folder.name(at, entry.name)}: {error}") from None


def _metadata(folder: FolderStore, at: int, entry: FileEntry) -> dict[str, str]:
    """Returns the metadata of a safetensors file; reads its header only. Raises Damaged."""
    try:
        with safe_open(folder.place(at) / entry.name, framework="np") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{folder.name(at, entry.name)}: {error}") from None


def _facts_of_worker(found: Any) -> dict[str, Any]:
    """Returns the facts of a worker's file, checked one by one. Raises ValueError."""
    facts = check_facts(found, WORKER)
    missing = [name for name in ("entry", "counts") if name not in facts]
    if missing:
        raise ValueError(f"it has no {missing[0]!r}")
    return facts


def _entry(v: Any) -> bool:
    """Returns True for a position: steps, place in the data, states of generators, and, if kept, samples in all, which
    of them were drawn from the common queue, and which are of shares."""
    whole = isinstance(v, list) and len(v) in (3, 4, 5, 6) and count(v[0]) and count(v[1]) and isinstance(v[2], list)
    whole = whole and (len(v) == 3 or v[3] == -1 or count(v[3]))
    whole = whole and (len(v) < 5 or dealt(v[4])) and (len(v) < 6 or v[5] is None or of_shares(v[5]))
    return whole and 1 <= len(v[2]) <= GENERATORS_MAX and all(map(_base64, v[2]))


def dealt(v: Any) -> bool:
    """Returns True for None, or for the length of a data set and pieces of it."""
    if v is None:
        return True
    whole = isinstance(v, list) and len(v) == 2 and count(v[0]) and done(v[1])
    return whole and all(stop <= v[0] for _, _, stop in v[1])


def of_shares(v: Any) -> bool:
    """Returns True for the length of a share, and pieces of shares."""
    return isinstance(v, list) and len(v) == 2 and count(v[0]) and pieces_of_shares(v[1])


def _base64(v: Any) -> bool:
    """Returns True for a text of base64 that is not empty."""
    try:
        return isinstance(v, str) and bool(base64.b64decode(v, validate=True))
    except (binascii.Error, ValueError):
        return False


def _rng(v: Any) -> bool:
    """Returns True for None, or for what `random.Random` takes back as its state."""
    if v is None:
        return True
    try:
        version, state, gauss = v
        random.Random().setstate((version, tuple(state), gauss))
    except (TypeError, ValueError, OverflowError):
        return False
    return version == RANDOM_VERSION and (gauss is None or number(gauss))


def _counts(v: Any) -> bool:
    """Returns True for a table of counts by name."""
    return isinstance(v, dict) and all(map(count, v.values()))


def _table(v: Any) -> bool:
    """Returns True for any table: what is in it depends on the scheme."""
    return isinstance(v, dict)


WORKER: Mapping[str, Callable[[Any], bool]] = {
    "entry": _entry,
    "rng": _rng,
    "counts": _counts,
    "scales": numbers,
    "rule": numbers,
    "user": numbers,
    "common": _table,
    "kept": kept,
}
"""By key of a worker's JSON file, what its value must fulfil. Keys that are not in the table may have any value."""
