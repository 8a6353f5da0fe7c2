"""Estimates of memory and pace from a short simulated run."""

from __future__ import annotations

import dataclasses

import pytest

from paceline import config as configuration
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.estimate import held, look
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.simulated.virtual_runs import setting


def test_memory_grows_with_what_a_scheme_keeps() -> None:
    """DC-ASGD's server has a backup for each worker; ASP's has none."""
    prospects = {name: look(setting(name, timing_only=True), Silent()) for name in ("asp", "dcasgd")}
    length = prospects["asp"].summary.model_length
    more = prospects["dcasgd"].server_bytes - prospects["asp"].server_bytes
    assert more >= 3 * 4 * length
    assert held({"a": [1, "x", None]}) == 0


@pytest.mark.parametrize(
    ("scheme", "unseen"),
    [
        ("bsp", ""),
        ("hybrid", "esync, after bsp until 100 steps"),
        ("postlocal", "8 local steps a round, after 200 steps"),
    ],
)
def test_a_short_look_says_what_of_a_scheme_that_changes_it_did_not_see(scheme: str, unseen: str) -> None:
    assert look(setting(scheme, timing_only=True), Silent()).unseen == unseen


@pytest.mark.parametrize("workers", [4, 64, 256, 1000])
def test_equal_workers_get_through_as_many_samples_whoever_says_how_large_a_batch_is(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Without a data set a batch is --batch-size, whatever the workers; a sample costs the same in each."""
    monkeypatch.setattr("paceline.runtime.simulated.estimate.ROUNDS", 40 if workers < 100 else 4)
    config = configuration.build(
        {"cluster": {"workers": workers, "servers": 1, "step_ms": 10.0}, "data": {"batch_size": 32}}
    )
    cluster = cluster_of(config, NetworkSpec(latency_s=0.0, bandwidth_gbps=1e9), lambda: 0.0)
    rates = {}
    for scheme in ("bsp", "lbbsp"):
        run = dataclasses.replace(config.run, scheme=scheme)
        chosen = SimulationSetup(
            config=dataclasses.replace(config, run=run),
            cluster=cluster,
            timing_only=True,
            model_length=1000,
        )
        rates[scheme] = look(chosen, Silent()).samples_per_second
    assert rates["bsp"] == pytest.approx(workers * 32 / 0.01, rel=0.05)
    assert rates["lbbsp"] == pytest.approx(rates["bsp"], rel=0.05)


@pytest.mark.parametrize(
    ("scheme", "low", "high"),
    [
        ("localsgd", 8, 8),
        ("slowmo", 12, 12),
        ("diloco", 20, 20),
        ("sparseloco", 20, 20),
        ("noloco", 20, 20),
        ("muloco", 30, 30),
        ("easgd", 10, 10),
        ("asyncdiloco", 4, 20),
        ("halos", 2, 8),
        ("decoupled", 1, 6),
    ],
)
def test_the_steps_between_exchanges_are_those_that_the_scheme_says(scheme: str, low: float, high: float) -> None:
    seen = look(setting(scheme, timing_only=True), Silent())
    assert seen.spacing is not None
    assert low <= seen.spacing <= high
