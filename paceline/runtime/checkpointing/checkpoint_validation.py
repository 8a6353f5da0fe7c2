"""Checks, before a run goes on from a checkpoint, that everybody will be able to read what is in it.

Sizes and checksums are right by then, and so are the manifest's own facts (`paceline.checkpoint.manifest_facts`).
Every file names the checkpoint that it is of, as the manifest does: files of two, with a manifest that has the
checksums of both, are none. Those that older versions have written name none.
Whether the tensors fit the model is said where the model is made.
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
from paceline.checkpoint.manifest_facts import count, number, numbers
from paceline.checkpoint.strict_json import decoded

OPTIMIZER = "optimizer.safetensors"
CHECKPOINT_ID = "checkpoint_id"
"""In the facts of the manifest and of a worker, and in the metadata of a safetensors file; drawn for each."""
JSON_BYTES_MAX = 1 << 24
GENERATORS_MAX = 8
RANDOM_VERSION = 3


def worker_names(rank: int) -> tuple[str, str]:
    """The files with what a worker remembers, in JSON and in tensors."""
    return f"worker-{rank:05d}.json", f"worker-{rank:05d}.safetensors"


def check(folder: FolderStore, at: int, manifest: Manifest) -> None:
    """Raises Damaged, naming the file and what is wrong with it."""
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
    try:
        with safe_open(folder.place(at) / entry.name, framework="np") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{folder.name(at, entry.name)}: {error}") from None


def _facts_of_worker(found: Any) -> dict[str, Any]:
    """Raises ValueError."""
    facts = check_facts(found, WORKER)
    missing = [name for name in ("entry", "counts") if name not in facts]
    if missing:
        raise ValueError(f"it has no {missing[0]!r}")
    return facts


def _entry(v: Any) -> bool:
    """Steps, place in the data, states of generators."""
    whole = isinstance(v, list) and len(v) == 3 and count(v[0]) and count(v[1]) and isinstance(v[2], list)
    return whole and 1 <= len(v[2]) <= GENERATORS_MAX and all(map(_base64, v[2]))


def _base64(v: Any) -> bool:
    try:
        return isinstance(v, str) and bool(base64.b64decode(v, validate=True))
    except (binascii.Error, ValueError):
        return False


def _rng(v: Any) -> bool:
    """What `random.Random` takes back as its state."""
    if v is None:
        return True
    try:
        version, state, gauss = v
        random.Random().setstate((version, tuple(state), gauss))
    except (TypeError, ValueError, OverflowError):
        return False
    return version == RANDOM_VERSION and (gauss is None or number(gauss))


def _counts(v: Any) -> bool:
    return isinstance(v, dict) and all(map(count, v.values()))


def _table(v: Any) -> bool:
    return isinstance(v, dict)


WORKER: Mapping[str, Callable[[Any], bool]] = {
    "entry": _entry,
    "rng": _rng,
    "counts": _counts,
    "scales": numbers,
    "rule": numbers,
    "user": numbers,
    "common": _table,
}
