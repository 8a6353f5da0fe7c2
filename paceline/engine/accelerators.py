"""Devices beside the CPU, by the interface that torch has for all of them: CUDA, ROCm (by the name cuda), XPU, MPS.

A device is one of torch's, of any type. What a type lacks is left out: there is nothing to wait for on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

OUT_OF_MEMORY = ("DefaultCPUAllocator: ", "MPS backend out of memory")
"""Texts in errors of allocators that have no class of their own."""


def count_of(kind: str) -> int:
    """Returns how many devices of this kind torch finds here: 0 for one that it was not built for."""
    found = torch.accelerator.current_accelerator()
    return torch.accelerator.device_count() if found is not None and found.type == kind else 0


def wait_for(device: torch.device) -> None:
    """Waits until a device has done what this thread has asked of it: backward, not what leaves beside it."""
    if device.type == "cuda":  # alone there gradients leave on a stream of their own (`vectors/pinned_copy.py`)
        torch.accelerator.current_stream(device).synchronize()
    else:
        wait_for_all(device)


def wait_for_all(device: torch.device) -> None:
    """Waits until a device has done all that was asked of it, by anybody in this process."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def memory_of(device: torch.device) -> tuple[int, int]:
    """Returns the bytes that this process has reserved of a device's memory, and the bytes that the device has.

    Both are 0 for the CPU, and for a device whose allocator torch does not ask.
    """
    if device.type == "cpu":
        return 0, 0
    try:
        return torch.accelerator.memory_reserved(device), torch.accelerator.get_memory_info(device)[1]
    except (RuntimeError, AttributeError, NotImplementedError):
        return 0, 0


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True for an error of an allocator: torch has a class for it on GPUs, and texts on CPU and MPS."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)


def give_back_memory(device: torch.device) -> None:
    """Returns what torch holds of a device's memory and nobody uses, which is in pieces perhaps."""
    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()


class BusyShare:
    """Asks the driver how busy a CUDA device is; it needs nvidia-ml-py, which is optional."""

    def __init__(self, device: torch.device) -> None:
        """Looks the device up by its UUID, since the driver counts devices in another order than torch."""
        self._handle: Any = None
        if device.type != "cuda":
            return
        try:
            import pynvml  # type: ignore[import-not-found,unused-ignore]

            pynvml.nvmlInit()
            uuid = str(torch.cuda.get_device_properties(device).uuid)
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
            self._rates = pynvml.nvmlDeviceGetUtilizationRates
        except Exception:  # the package, the driver or the device may be missing, each with errors of its own
            self._handle = None

    def now(self) -> float:
        """Returns the share of the driver's last period in which the device computed, from 0 to 1; -1 if unknown."""
        if self._handle is None:
            return -1.0
        try:
            return float(self._rates(self._handle).gpu) / 100
        except Exception:
            self._handle = None
            return -1.0


def generator_state(device: torch.device) -> Tensor | None:
    """Returns the state of torch's random generator of a device; None for the CPU, whose generator is torch's own."""
    if device.type == "cpu":
        return None
    module = torch.get_device_module(device)
    state: Tensor = module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)
    return state


def set_generator_state(state: Tensor, device: torch.device) -> None:
    """Sets the state of a device's generator; one that is on the CPU has none to set."""
    if device.type == "mps":
        torch.get_device_module(device).set_rng_state(state)
    elif device.type != "cpu":
        torch.get_device_module(device).set_rng_state(state, device)
