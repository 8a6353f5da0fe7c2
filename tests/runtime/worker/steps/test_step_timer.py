"""How fast a server updates is measured."""

from __future__ import annotations

from paceline.runtime.worker.steps.step_timer import measured_update


def test_a_server_measures_how_fast_it_updates() -> None:
    speed, most = measured_update(length=1 << 16)
    assert 1e6 < speed <= most < 1e14
