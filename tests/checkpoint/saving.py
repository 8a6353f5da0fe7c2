"""Checkpoints of a few bytes."""

from __future__ import annotations

from paceline.checkpoint.folder_store import FolderStore
from paceline.checkpoint.manifest import Manifest


def save(folder: FolderStore, number: int, data: bytes, finite: bool = True, **facts: object) -> Manifest:
    chunks = [data[i : i + 100] for i in range(0, len(data), 100)]
    contents = {"a.safetensors": chunks, "b.safetensors": chunks}
    return folder.save(number, contents, finite=finite, step=number, **facts)


def contents(folder: FolderStore) -> list[bytes]:
    number, _ = folder.newest()
    assert number is not None
    return [folder.load(number, entry) for entry in folder.manifest(number).files]
