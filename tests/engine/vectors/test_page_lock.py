"""Shared memory is page-locked for a GPU, for as long as it is mapped."""

from __future__ import annotations

import ctypes
import gc
import os

import pytest
import torch

from paceline.engine.vectors import buffer_pool
from paceline.engine.vectors import page_lock as page_lock_module
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.engine.vectors.page_lock import PORTABLE, READ_ONLY, page_lock
from paceline.live.same_host.file_mapping import map_shared
from paceline.live.same_host.shared_memory import Segments

NBYTES = 1 << 20
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


class FakeRuntime:
    """Answers as CUDA does. `calls`: what was asked of it."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.calls = code, list[tuple[object, ...]]()

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        self.calls.append(("register", address, nbytes, flags))
        return self.code

    def cudaHostUnregister(self, address: int) -> int:
        self.calls.append(("unregister", address))
        return 0


@pytest.mark.parametrize(("writable", "flags"), [(True, PORTABLE), (False, PORTABLE | READ_ONLY)])
def test_memory_is_locked_until_nobody_refers_to_it(
    writable: bool, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    memory = (ctypes.c_char * NBYTES)()
    address = ctypes.addressof(memory)
    assert page_lock(memory, writable=writable)
    assert runtime.calls == [("register", address, NBYTES, flags)]
    view = memoryview(memory)
    del memory
    assert len(runtime.calls) == 1
    del view
    gc.collect()
    assert runtime.calls[1:] == [("unregister", address)]


def test_a_driver_that_refuses_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, cleared = FakeRuntime(code=801), list[bool]()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(page_lock_module, "_forget_error", lambda: cleared.append(True))
    memory = (ctypes.c_char * NBYTES)()
    assert not page_lock(memory, writable=False)
    del memory
    gc.collect()
    assert [name for name, *_ in runtime.calls] == ["register"]
    assert cleared == [True]


def test_only_a_party_on_a_gpu_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    memory = (ctypes.c_char * NBYTES)()
    FlatMemory("cpu").mapped(memory, writable=True)
    assert not runtime.calls
    FlatMemory("cuda:0").mapped(memory, writable=True)
    assert runtime.calls


def test_segments_are_prepared_before_they_are_used() -> None:
    segments, prepared = Segments(), list[int]()
    segments.prepare = lambda mapped: prepared.append(ctypes.sizeof(mapped))
    room = segments.make(NBYTES)
    assert room is not None
    assert prepared == [NBYTES]


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize("writable", [True, False])
def test_a_gpu_copies_from_memory_that_is_shared(writable: bool) -> None:
    file = os.memfd_create("shared")
    os.ftruncate(file, NBYTES)
    written = map_shared(file, NBYTES, write=True)
    for _ in range(2):  # unmapped and mapped anew: it was unlocked in between
        mapped = written if writable else map_shared(file, NBYTES, write=False)
        if page_lock(mapped, writable=writable):
            x = torch.frombuffer(mapped, dtype=torch.float32)
            assert x.is_pinned()
            assert torch.equal(x.to("cuda", non_blocking=True).cpu(), x)
            del x
        assert torch.ones(3, device="cuda").sum().item() == 3  # no error is left behind for torch
        del mapped
        if writable:
            return
    os.close(file)


@pytest.fixture
def segments(monkeypatch: pytest.MonkeyPatch) -> Segments:
    """Shared memory of this process, page-locked, from which vectors get theirs."""
    made = Segments()
    made.prepare = lambda mapped: FlatMemory("cuda").mapped(mapped, writable=True)
    monkeypatch.setattr(buffer_pool, "_HOST", buffer_pool.Pool())
    buffer_pool.take_memory_from(made.make)
    return made


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize("length", [300, 100_000, 1_000_000])
def test_what_leaves_a_gpu_lies_where_others_read_it(segments: Segments, length: int) -> None:
    v = FlatMemory("cuda").shareable(Flat(torch.arange(length, device="cuda", dtype=torch.float32), 2.0))
    assert torch.equal(v.value(), 2.0 * torch.arange(length))
    assert v.tensor.is_pinned()
    if length > 16384:
        assert segments.find(FlatMemory("cuda").address_of(v), v.nbytes)


@pytest.mark.cuda
@needs_cuda
def test_memory_is_held_until_the_gpu_has_read_it() -> None:
    memory = FlatMemory("cuda")
    source, out = memory.empty(1_000_000), torch.zeros(1_000_000, device="cuda")
    memory.bytes_of(source)[:] = b"\0\0\x80\x3f" * 1_000_000
    torch.cuda._sleep(50_000_000)
    source.copy_into(out)
    del source
    for _ in range(4):  # would take the same memory again
        other = memory.empty(1_000_000)
        memory.bytes_of(other)[:] = bytes(4_000_000)
    assert torch.equal(out.cpu(), torch.ones(1_000_000))
