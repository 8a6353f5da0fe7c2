"""Runs that end after so many epochs, live and in virtual time: one table for all schemes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.core.scheme import make, names
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import Summary
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for

SAMPLES = 1437  # of the digits
ROUND = {"esync": 3 * 20 * 32}
"""Samples of a round, where the last one is not cut to what is left: the slowest worker ends it in `esync`. Elsewhere
nothing is trained beyond the epochs but what rounding up does, less than a sample a worker."""
INEVITABLE = {"eamsgd, synchronous": 3 * 10 * 32, "diloco, streaming": 3 * 4 * 32}
"""What is asked for before an exchange, come what may: ten single gradients, or steps while a mean is under way."""
ROWS: dict[str, dict[str, Any]] = {
    **{scheme: {} for scheme in names()},
    "localsgd with codecs": {"scheme": "localsgd", "compression": {"up": "topk(ratio=0.1)"}},
    "bsp, no server": {"scheme": "bsp", "servers": 0},
    "bsp of several batches": {"scheme": "bsp", "bsp": {"steps": 4}, "servers": 2},
    "asp of deltas": {"scheme": "asp", "asp": {"payload": "delta", "steps": 5}, "servers": 2},
    "easgd, synchronous": {"scheme": "easgd", "easgd": {"synchronous": True}, "servers": 0},
    "eamsgd, synchronous": {"scheme": "eamsgd", "eamsgd": {"synchronous": True}},
    "diloco, streaming": {"scheme": "diloco", "diloco": {"h": 8, "fragments": 2, "delay": 2}},
    "asp, one worker": {"scheme": "asp", "workers": 1},
    "bsp, one worker": {"scheme": "bsp", "workers": 1},
    "bsp, a batch is more than a share": {"scheme": "bsp", "data": {"batch_size": 600}},
    "asp, a batch is more than a share": {"scheme": "asp", "data": {"batch_size": 600}},
    "more workers than batches, bsp": {"scheme": "bsp", "workers": 5, "epochs": 0.05},
    "more workers than batches, asp": {"scheme": "asp", "workers": 5, "epochs": 0.05},
    "more workers than batches, localsgd": {"scheme": "localsgd", "workers": 5, "epochs": 0.05},
    "unequal shares": {"scheme": "localsgd", "data": {"partition": "fractions:0.9,0.06,0.04"}},
}  # fmt: skip


def config_of(row: str, out: Path, **more: Any) -> Any:
    values = {"scheme": row, "workers": 3, "epochs": 2.0, **ROWS[row], **more}
    scheme = make(values["scheme"], {})
    values.setdefault("servers", 0 if scheme.needs_peers and scheme.Server is None else 1)
    evaluation, checkpoint = {"every": 60.0}, {"every": 0.0}
    stop = {"epochs": values.pop("epochs")}
    values = {"stop": stop, "evaluation": evaluation, "checkpoint": checkpoint, **values}
    return config_for(out, steps=0, **values)


def assert_exact(row: str, summary: Summary) -> None:
    wanted = round(ROWS[row].get("epochs", 2.0) * SAMPLES)
    over = ROUND.get(summary.scheme, 0) + len(summary.workers) - 1
    over += INEVITABLE.get(row, 0)
    assert summary.reason == "epochs"
    assert wanted <= summary.samples <= wanted + over
    assert summary.samples == sum(worker.samples for worker in summary.workers)


@pytest.mark.filterwarnings("ignore:batches of 600 samples")
@pytest.mark.parametrize("row", ROWS)
def test_live_a_run_trains_its_epochs_and_no_more(threads: Runner, out: Path, row: str) -> None:
    assert_exact(row, threads(config_of(row, out)))


@pytest.mark.parametrize("row", ROWS)
def test_in_virtual_time_a_run_trains_its_epochs_and_no_more(row: str) -> None:
    config = config_of(row, Path())
    workers = config.cluster.workers
    config = config_of(row, Path(), cluster={"slowdown": [1, 2, 8, 1, 1][:workers], "step_ms": 10.0})
    cluster = cluster_of(config, NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0), lambda: 0.0)
    setting = SimulationSetup(config=config, cluster=cluster, timing_only="codecs" not in row)
    assert_exact(row, VirtualRun(setting, Silent()).run(leave=False))


@pytest.mark.parametrize("row", ["asp", "easgd", "bsp", "ssp", "gosgd", "esync"])
def test_a_worker_that_is_eight_times_slower_changes_nothing(threads: Runner, out: Path, row: str) -> None:
    slow = {"slowdown": [1, 8, 2], "step_ms": 1.0}
    assert_exact(row, threads(config_of(row, out, cluster=slow)))


@pytest.mark.parametrize("row", ["asp", "bsp", "localsgd", "easgd"])
def test_a_run_that_goes_on_trains_what_is_left_of_its_epochs(threads: Runner, out: Path, row: str) -> None:
    keep = {"checkpoint": {"every": 60.0}}
    first = threads(config_of(row, out, **keep, epochs=1.0))
    second = threads(config_of(row, out, checkpoint={"every": 60.0, "resume": "auto"}))
    assert_exact(row, second)
    assert first.samples == pytest.approx(SAMPLES, abs=2)


@pytest.mark.parametrize("scheme", ["asp", "bsp"])
def test_leased_samples_count_though_the_second_server_has_the_beginning_of_the_model(
    threads: Runner, out: Path, scheme: str
) -> None:
    queue = {"data": {"partition": "queue"}, "epochs": 1.0, "servers": 2}
    summary = threads(config_of(scheme, out, cluster={"shards": "0.3,0.7"}, **queue))
    assert (summary.reason, summary.samples >= SAMPLES) == ("epochs", True)


def test_a_run_of_decoupled_goes_on_from_its_checkpoint(threads: Runner, out: Path) -> None:
    first = threads(config_of("decoupled", out, epochs=1.0, checkpoint={"every": 60.0}))
    assert first.samples == pytest.approx(SAMPLES, abs=2)
    assert_exact("decoupled", threads(config_of("decoupled", out, checkpoint={"every": 60.0, "resume": "auto"})))


def test_steps_and_epochs_end_a_run_at_whichever_comes_first(threads: Runner, out: Path) -> None:
    summary = threads(config_of("asp", out, stop={"epochs": 2.0, "steps": 7}))
    assert (summary.reason, [worker.steps for worker in summary.workers]) == ("steps", [7] * 3)
