"""How fast a server updates is measured."""

from __future__ import annotations

import threading

import pytest
import torch

from paceline.live.adaptive_spin import working_seconds
from paceline.runtime.worker.steps.step_timer import Stopwatch, measured_update


def test_a_server_measures_how_fast_it_updates() -> None:
    speed, most = measured_update(length=1 << 16)
    assert 1e6 < speed <= most < 1e14


@pytest.mark.parametrize(("kind", "waited"), [("cpu", []), ("xpu", ["xpu"]), ("mps", ["mps"])])
def test_a_step_lasts_until_its_device_is_done(kind: str, waited: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: found.append(device.type))
    watch = Stopwatch(torch.device(kind), threading.Event())
    watch.begin()
    assert watch.passed(0.0) >= 0.0
    assert found == waited


def test_a_step_that_is_drawn_out_uses_its_core_only_while_it_computes() -> None:
    watch = Stopwatch(torch.device("cpu"), threading.Event())
    watch.begin()
    while working_seconds() - watch._cpu_began < 0.02:
        pass
    assert watch.passed(0.3) >= 0.3
    assert 0.02 <= watch.cpu < 0.2


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_the_host_is_one_step_ahead_of_a_gpu_until_something_is_handed_over() -> None:
    watch, stream = Stopwatch(torch.device("cuda"), threading.Event()), torch.cuda.current_stream()
    watch.begin()
    torch.cuda._sleep(100_000_000)
    watch.passed(0.0, hands_over=False)
    assert not stream.query()  # the first step is still being made
    watch.begin()
    torch.cuda._sleep(100_000_000)
    first = stream.record_event()
    watch.passed(0.0, hands_over=False)
    assert not first.query()  # the second one is; the first is done
    watch.begin()
    watch.passed(0.0)
    assert stream.query()
