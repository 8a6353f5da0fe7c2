"""A run over shared memory: the same bits as over TCP and as in one process; and what it says of its exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.live.same_host.shared_memory import Segments
from paceline.observe.runs.summary import Summary
from tests.runtime.conftest import Runner
from tests.runtime.one_process import assert_same, config_for, one_process, saved

STEPS = 6
SHARED = {"name": "lenet", "width": 3.0}  # long enough to be lent
SETTINGS: dict[str, dict[str, Any]] = {
    "one server": {"servers": 1},
    "two servers": {"servers": 2},
    "slices": {"servers": 1, "cluster": {"slice_mb": 0.1}},
    "peers": {"servers": 0, "cluster": {"allreduce": "ring"}},
}

pytestmark = pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")


def run(runner: Runner, out: Path, transport: str, *, servers: int, **settings: Any) -> tuple[Summary, Any]:
    cluster = {"transport": transport, **settings.pop("cluster", {})}
    settings["evaluation"] = {"every": 600.0}
    config = config_for(out, steps=STEPS, servers=servers, model=SHARED, cluster=cluster, **settings)
    return runner(config), config


@pytest.mark.parametrize("setting", SETTINGS)
def test_shared_memory_gives_the_same_bits_as_tcp_and_as_one_process(
    processes: Runner, tmp_path: Path, setting: str
) -> None:
    shared, config = run(processes, tmp_path / "shm", "shm", **SETTINGS[setting])
    plain, other = run(processes, tmp_path / "tcp", "tcp", **SETTINGS[setting])
    ours, theirs = saved(config), saved(other)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert_same(ours, one_process(config, STEPS))
    assert (shared.transport, plain.transport) == ("shared memory (same host)", "TCP")
    assert plain.bytes_shared == 0
    assert shared.bytes_shared > 0.8 * (shared.bytes_up + shared.bytes_down)
    handed_over = STEPS * config.cluster.workers * sum(4 * tensor.numel() for tensor in ours.values())
    for summary in (shared, plain):  # the evaluator may look while they train, which is traffic, too
        assert handed_over <= summary.bytes_up < 2 * handed_over, "traffic counts what was lent, too"


def test_auto_shares_memory_and_says_so(processes: Runner, out: Path) -> None:
    summary, _ = run(processes, out, "auto", servers=1)
    assert summary.transport == "shared memory (same host)"
    assert summary.bytes_shared > 0


def test_threads_of_one_process_exchange_in_this_process(threads: Runner, out: Path) -> None:
    assert run(threads, out, "auto", servers=1)[0].transport == "this process"


def test_where_memory_cannot_be_shared_auto_does_without_and_shm_is_refused(
    monkeypatch: pytest.MonkeyPatch, out: Path
) -> None:
    monkeypatch.setattr(Segments, "available", staticmethod(lambda: False))
    config_for(out, steps=1, cluster={"transport": "auto"})
    with pytest.raises(ConfigError, match="use --transport auto"):
        config_for(out, steps=1, cluster={"transport": "shm"})
