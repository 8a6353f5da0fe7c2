"""What is kept on disk comes back as it was, and takes no memory meanwhile."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
import torch

from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.live.numpy_memory import PlainMemory
from paceline.runtime.checkpointing.disk_buffer import SPOOLED_BYTES_MIN, DiskBuffer, DiskVector, unspooled

LONG = SPOOLED_BYTES_MIN // 4


def test_vectors_come_back_as_they_were() -> None:
    vectors = {"w": Flat.wrap(torch.randn(LONG)), "m": Flat.wrap(torch.randn(LONG + 3)) * 0.5}
    spool = DiskBuffer(FlatMemory())
    kept = [spool.all(vectors), spool.all({name: v * 2.0 for name, v in vectors.items()})]
    for times, there in enumerate(kept, 1):
        for name, v in vectors.items():
            assert isinstance(there[name], DiskVector)
            assert torch.equal(unspooled(there[name]).value(), v.value() * times)


def test_so_do_those_of_a_process_without_torch_and_others_stay_where_they_are() -> None:
    memory = PlainMemory()
    v, other = memory.empty(LONG), Flat.wrap(torch.ones(LONG))
    v[:] = range(LONG)
    kept = DiskBuffer(memory).all({"w": v, "other": other})
    assert isinstance(kept["w"], DiskVector)
    assert (unspooled(kept["w"]) == v).all()
    assert kept["other"] is other


def test_nobody_finds_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = DiskBuffer(FlatMemory()).all({"w": Flat.wrap(torch.ones(LONG))})
    assert list(tmp_path.iterdir()) == []
    assert unspooled(kept["w"]).value().sum() == LONG


def test_what_is_short_stays_in_memory() -> None:
    v = Flat.wrap(torch.ones(LONG - 1))
    assert DiskBuffer(FlatMemory()).all({"w": v})["w"] is v


def test_where_the_disk_is_full_vectors_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    v = Flat.wrap(torch.ones(LONG))
    assert DiskBuffer(FlatMemory()).all({"w": v})["w"] is v


def test_a_file_that_was_cut_is_an_error_and_no_vector() -> None:
    kept = DiskBuffer(FlatMemory()).all({"w": Flat.wrap(torch.ones(LONG))})["w"]
    os.ftruncate(kept.file.number, 8)
    with pytest.raises(OSError, match="too early"):
        unspooled(kept)
