"""Runs in virtual time: real models and data, or vectors without numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline import config as configuration
from paceline.core.errors import Diverged
from paceline.core.trace import Applied, Ended, LostWork, MemberChange, Span
from paceline.launch.local.train import Silent
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated.setup import SimulationSetup
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim import Cluster, load
from paceline.sim.cluster.model import Device, Fault, Host, NetworkSpec, Spot
from tests.runtime.one_process import assert_same, one_process, saved
from tests.runtime.simulated.virtual_runs import run, setting

FAST = NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0)


def test_a_round_lasts_as_long_as_the_slowest_step_and_the_model_learns() -> None:
    summary = run(stop={"steps": 50, "epochs": 0})
    assert summary.driver == "sim"
    assert summary.reason == "steps"
    assert [w.steps for w in summary.workers] == [50, 50, 50]
    assert 50 * 0.04 < summary.seconds < 50 * 0.042
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.4  # one in ten is chance
    samples_s = [w.samples / 32 * seconds for w, seconds in zip(summary.workers, (0.01, 0.02, 0.04), strict=True)]
    assert [w.seconds_computing for w in summary.workers] == pytest.approx(samples_s)
    assert samples_s == pytest.approx([0.5, 1.0, 2.0], rel=0.003), "the last batch of an epoch is one short"
    assert summary.bytes_up == pytest.approx(50 * 3 * 4 * summary.model_length)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd"])
def test_timing_only_takes_as_long_as_training_does(scheme: str) -> None:
    real, ghost = (run(scheme, timing_only=timing_only, stop={"epochs": 1}) for timing_only in (False, True))
    assert ghost.test_accuracy is None
    for name in ("samples", "model_length", "bytes_up", "bytes_down"):
        assert getattr(real, name) == getattr(ghost, name), name
    assert real.seconds == pytest.approx(ghost.seconds, rel=1e-12)
    assert [(w.steps, w.exchanges) for w in real.workers] == [(w.steps, w.exchanges) for w in ghost.workers]


@pytest.mark.parametrize("scheme", ["bsp", "asp", "tiers", "localsgd", "gosgd"])
def test_after_the_end_every_worker_finishes_its_step_and_nobody_joins(scheme: str, tmp_path: Path) -> None:
    spot = Host(name="spot", count=6, devices=(Device(),), spot=Spot(life_s=0.3, away_s=0.05))
    cluster = Cluster(hosts=(Host(name="own", devices=(Device(),), servers=1), spot), step_s=0.01, suspect_after_s=0.1)
    out = str(tmp_path / "run")
    words = {"cluster": cluster, "on": {"workers": 7, "slowdown": []}, "stop": {"seconds": 1.0, "epochs": 0}}
    VirtualRun(setting(scheme, timing_only=True, out=out, **words), Silent()).run()
    records = list(read_trace(tmp_path / "run" / "trace.jsonl"))
    [end] = [number for number, record in enumerate(records) if isinstance(record, Ended)]
    before, after = records[:end], records[end:]
    assert "returned" in {record.event for record in before if isinstance(record, MemberChange)}
    changes = [record for record in after if isinstance(record, MemberChange)]
    assert {record.event for record in changes} <= {"left", "lost"}
    assert {record.reason for record in changes if record.event == "left"} == {"seconds"}
    steps = [record.rank for record in after if isinstance(record, Span) and record.activity == "computing"]
    assert len(steps) == len(set(steps))


@pytest.mark.parametrize("scheme", ["halos", "tiers"])
def test_samples_that_are_counted_are_in_the_model_though_those_who_speak_for_groups_are_lost(
    scheme: str, tmp_path: Path
) -> None:
    lost = [Fault(kind="crash", at_s=at, workers=(rank,), for_s=0.2) for at, rank in ((0.55, 0), (1.35, 2))]
    workers = Host(name="own", count=4, devices=(Device(),))
    hosts = (workers, Host(name="server", servers=1))
    cluster = Cluster(hosts=hosts, step_s=0.01, suspect_after_s=0.1, faults=tuple(lost))
    words = {"cluster": cluster, "on": {"workers": 4, "slowdown": []}, "stop": {"epochs": 12}}
    summary = VirtualRun(setting(scheme, out=str(tmp_path / "run"), **words), Silent()).run()
    records = list(read_trace(tmp_path / "run" / "trace.jsonl"))
    applied = sum(record.samples for record in records if isinstance(record, Applied))
    assert summary.samples == applied
    work = [record for record in records if isinstance(record, LostWork)]
    assert {record.party for record in work} == {"worker 0", "worker 2"}
    for worker in summary.workers:
        spans = [r for r in records if isinstance(r, Span) and r.rank == worker.rank and r.activity == "computing"]
        minus = [record for record in work if record.rank == worker.rank]
        assert worker.samples == sum(r.samples for r in spans) - sum(r.samples for r in minus)
        assert worker.steps == sum(r.steps for r in spans) - sum(r.steps for r in minus)


def test_the_same_seed_leaves_the_same_bytes(tmp_path: Path) -> None:
    def left(name: str, seed: int) -> list[bytes]:
        wanted = setting("asp", cluster=load("two-generations"), on={"workers": 8, "servers": 2, "slowdown": []},
                         stop={"epochs": 0.5})  # fmt: skip
        values = configuration.to_dict(wanted.config)
        values["run"].update(seed=seed, out=str(tmp_path / name))
        again = SimulationSetup(config=configuration.build(values), cluster=wanted.cluster)
        VirtualRun(again, Silent()).run()
        return [(tmp_path / name / f).read_bytes() for f in ("trace.jsonl", "summary.json", "model.safetensors")]

    first = left("a", 1)
    assert first == left("b", 1)
    assert all(x != y for x, y in zip(first, left("c", 2), strict=True))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("scheme", ["localsgd", "slowmo", "diloco", "muloco", "asyncdiloco", "noloco"])
def test_the_last_exchange_is_in_the_model_that_is_judged_and_the_summary_counts_it(scheme: str, workers: int) -> None:
    on = {"workers": workers, "slowdown": [], "servers": 1}
    virtual = VirtualRun(setting(scheme, on=on, stop={"epochs": 0.3}), Silent())
    summary = virtual.run(leave=False)
    first, last = virtual.evaluations[0], virtual.evaluations[-1]
    assert (first.samples, last.samples) == (0, summary.samples)
    assert last.loss != first.loss, "it is the untrained model that was judged last"
    assert summary.warning == ""
    assert summary.goodput is not None
    assert summary.goodput > 0.3


def test_an_interrupted_run_keeps_what_there_is() -> None:
    virtual = VirtualRun(setting(stop={"epochs": 5}), Silent())
    virtual.interrupt("SIGINT")
    summary = virtual.run(leave=False)
    assert summary.reason == "interrupted by SIGINT"
    with pytest.raises(KeyboardInterrupt):
        virtual.interrupt("SIGINT")


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("scheme", ["bsp", "easgd", "sgp"])
def test_without_numbers_too_one_whose_results_are_nan_is_expelled(scheme: str, servers: int) -> None:
    if scheme == "easgd" and not servers:
        pytest.skip("easgd has its centre on servers")
    bad = Fault(kind="bad-results", at_s=0.5, workers=(1,))
    cluster = replace(setting(on={"servers": servers}).cluster, faults=(bad,))
    found = run(scheme, timing_only=True, cluster=cluster, on={"servers": servers}, stop={"seconds": 10, "epochs": 0})
    assert [worker.refused > 0 for worker in found.workers] == [False, True, False]
    assert found.workers[1].refused in (10, 11), "the tenth strike expels it; another result may be on its way"
    assert found.workers[1].steps < found.workers[2].steps, "which is half as fast, and stays"


def test_without_numbers_too_a_run_ends_when_nobodys_results_are_finite() -> None:
    bad = Fault(kind="bad-results", at_s=0.5, workers=(0, 1, 2))
    with pytest.raises(Diverged, match="the model has diverged"):
        run(timing_only=True, cluster=replace(setting().cluster, faults=(bad,)), stop={"seconds": 10, "epochs": 0})


@pytest.mark.parametrize("scheme", ["bsp", "asp", "localsgd"])
@pytest.mark.parametrize("stop", [{"epochs": 1.0}, {"steps": 8}])
def test_the_last_exchange_counts(scheme: str, stop: dict[str, Any]) -> None:
    """As it does live."""
    more = {"localsgd": {"tau": 4}} if scheme == "localsgd" else {}
    summary = run(scheme, timing_only=True, stop={"epochs": 0.0, **stop}, **more)
    tau = 4 if scheme == "localsgd" else 1
    assert [w.exchanges for w in summary.workers] == [-(-w.steps // tau) for w in summary.workers]


@pytest.mark.parametrize("scheme", ["bsp", "lbbsp", "asp", "esync", "tiers"])
def test_no_virtual_worker_has_a_batch_that_is_larger_than_its_largest(scheme: str, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    words = {"on": {"batch_limits": [96, 0, 32]}, "data": {"batch_size": 96}, "stop": {"epochs": 2}}
    summary = VirtualRun(setting(scheme, out=out, **words), Silent()).run()
    spans = [r for r in read_trace(tmp_path / "run" / "trace.jsonl") if isinstance(r, Span) and r.steps]
    spans = [r for r in spans if r.activity == "computing"]
    assert max(r.samples / r.steps for r in spans if r.rank == 2) == 32
    assert max(r.samples / r.steps for r in spans if r.rank == 0) <= 96
    assert summary.samples == 2 * 1437
    timing = run(scheme, timing_only=True, **words)
    assert (timing.samples, timing.seconds) == (summary.samples, pytest.approx(summary.seconds, rel=1e-12))


def test_a_batch_to_match_its_speed_leaves_no_worker_waiting() -> None:
    """Speeds 1, 1/2 and 1/4: under bsp the fast ones would wait for half and three quarters of the time."""
    words = {"data": {"batch_size": 96}, "stop": {"epochs": 4}}
    alike = run("bsp", timing_only=True, **words)
    unlike = run("bsp", timing_only=True, on={"batch_limits": [0, 48, 24]}, **words)
    assert unlike.seconds < 0.6 * alike.seconds


@pytest.mark.parametrize("servers", [0, 1])
def test_with_largest_batches_it_is_one_process_as_a_live_run_is(servers: int, tmp_path: Path) -> None:
    sections = {"on": {"workers": 3, "servers": servers, "slowdown": [], "batch_limits": [0, 36, 36]}}
    sections |= {"data": {"batch_size": 108}, "stop": {"epochs": 0, "steps": 12}}
    set_up = setting("bsp", out=str(tmp_path / "run"), **sections)
    VirtualRun(set_up, Silent()).run()
    assert_same(saved(set_up.config), one_process(set_up.config, 12))
