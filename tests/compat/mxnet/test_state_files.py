"""Optimizer states move to any number of servers."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from paceline.kvstore import KVStore
from tests.compat.mxnet.store_threads import run
from tests.compat.mxnet.test_distributed import random


def test_optimizer_states_are_saved_and_loaded_on_any_number_of_servers(tmp_path: Path) -> None:
    def work(kv: KVStore, load: bool) -> Tensor:
        kv.set_optimizer("adam", lr=0.1)
        kv.init("w", random(0, 5, 2))
        if load:
            kv.load_optimizer_states(tmp_path / "states")
            kv.barrier()
        for step in (3, 4) if load else (1, 2):
            kv.push("w", random(step, 5, 2))
        w = kv.pull("w")
        kv.save_optimizer_states(tmp_path / ("more" if load else "states"))
        return torch.as_tensor(w)

    def all_at_once(kv: KVStore) -> None:
        kv.set_optimizer("adam", lr=0.1)
        kv.init("w", random(0, 5, 2))
        for step in (1, 2, 3, 4):
            kv.push("w", random(step, 5, 2))
        kv.pull("w")
        kv.save_optimizer_states(tmp_path / "whole")

    run(lambda kv: work(kv, False), servers=1, bound=1)
    run(lambda kv: work(kv, True), servers=3, bound=1)
    run(all_at_once, servers=2, bound=1)
    from safetensors.torch import load_file

    more, whole = load_file(tmp_path / "more"), load_file(tmp_path / "whole")
    assert set(more) == set(whole) != set()
    for name in whole:
        torch.testing.assert_close(more[name], whole[name])
