"""Devices beside the CPU are asked by torch's common interface; here there is none, so torch is stubbed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.engine.accelerators import (
    BusyShare,
    count_of,
    generator_state,
    memory_of,
    set_generator_state,
    wait_for,
    wait_for_all,
)

CPU = torch.device("cpu")


class Machine:
    """A torch with two devices of one kind; it notes what is asked of it."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Any, ...]] = []
        note = lambda name: lambda *of: self.asked.append((name, *map(str, of)))  # noqa: E731
        stream = SimpleNamespace(synchronize=note("stream"))

        def state(*of: Any) -> torch.Tensor:
            self.asked.append(("get", *map(str, of)))
            return torch.tensor([7])

        module = SimpleNamespace(get_rng_state=state, set_rng_state=lambda v, *of: note("set")(int(v), *of))
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
        monkeypatch.setattr(torch.accelerator, "synchronize", note("device"))
        monkeypatch.setattr(
            torch.accelerator, "current_stream", lambda device: self.asked.append((device.type,)) or stream
        )
        monkeypatch.setattr(torch, "get_device_module", lambda device: module)


@pytest.mark.parametrize(("kind", "other"), [("cuda", "xpu"), ("xpu", "cuda"), ("mps", "cuda")])
def test_devices_of_a_kind_are_counted_and_no_others(monkeypatch: pytest.MonkeyPatch, kind: str, other: str) -> None:
    Machine(kind, monkeypatch)
    assert (count_of(kind), count_of(other), count_of("cpu")) == (2, 0, 0)


def test_without_one_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert count_of("cuda") == 0


def test_on_cuda_a_step_is_over_when_the_threads_own_stream_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the whole device: a gradient that leaves on another stream is no part of the step."""
    machine = Machine("cuda", monkeypatch)
    wait_for(torch.device("cuda", 1))
    assert machine.asked == [("cuda",), ("stream",)]


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_elsewhere_it_is_over_when_the_device_is(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    machine = Machine(kind, monkeypatch)
    wait_for(torch.device(kind, 0))
    wait_for_all(torch.device(kind, 0))
    assert machine.asked == [("device", f"{kind}:0")] * 2


@pytest.mark.parametrize(("name", "told"), [("cuda:1", ("cuda:1",)), ("xpu:0", ("xpu:0",)), ("mps:0", ())])
def test_a_devices_generator_is_saved_and_set_again(
    monkeypatch: pytest.MonkeyPatch, name: str, told: tuple[str, ...]
) -> None:
    machine = Machine(name[:4].strip(":"), monkeypatch)
    state = generator_state(torch.device(name))
    assert state is not None
    set_generator_state(state, torch.device(name))
    assert machine.asked == [("get", *told), ("set", "7", *told)]


def test_of_the_cpu_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("cuda", monkeypatch)
    wait_for(CPU)
    wait_for_all(CPU)
    assert generator_state(CPU) is None
    set_generator_state(torch.tensor([1]), CPU)
    assert machine.asked == []


def test_memory_is_that_of_torchs_allocator_and_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "memory_reserved", lambda device: 5 + device.index)
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda device: (20, 80))
    assert memory_of(torch.device("cuda", 1)) == (6, 80)
    assert memory_of(CPU) == (0, 0)

    def refused(device: torch.device) -> int:
        raise RuntimeError("this backend has none")

    monkeypatch.setattr(torch.accelerator, "memory_reserved", refused)
    assert memory_of(torch.device("mps", 0)) == (0, 0)


class Driver:
    """An NVML with one device, found by its UUID; `fails`: from the second question on."""

    def __init__(self, uuid: str, *, fails: bool = False) -> None:
        self.uuid, self.fails = uuid, fails

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != self.uuid:
            raise ValueError(uuid)
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        if self.fails:
            raise ValueError("the device has fallen off the bus")
        self.fails = True
        return SimpleNamespace(gpu=37, memory=9)


def test_the_driver_says_how_busy_a_device_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="ab-1"))
    monkeypatch.setitem(sys.modules, "pynvml", Driver("GPU-ab-1"))
    share = BusyShare(torch.device("cuda", 0))
    assert share.now() == 0.37
    assert share.now() == -1.0, "the device has gone"


def test_without_the_package_or_the_device_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="ab-1"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert BusyShare(torch.device("cuda", 0)).now() == -1.0
    monkeypatch.setitem(sys.modules, "pynvml", Driver("GPU-another"))
    assert BusyShare(torch.device("cuda", 0)).now() == -1.0
    assert BusyShare(CPU).now() == -1.0
