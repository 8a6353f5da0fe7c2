"""How fast a server updates is measured."""

from __future__ import annotations

import threading

import pytest
import torch

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
