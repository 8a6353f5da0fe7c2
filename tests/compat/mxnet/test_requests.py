"""A request in vain names the key, the server and the worker that is missing."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError, PacelineError, TimedOut
from paceline.kvstore import KVStore
from tests.compat.mxnet.store_threads import run


def test_a_wait_in_vain_names_the_key_the_server_and_the_worker_that_is_missing() -> None:
    def work(kv: Any) -> str:
        kv.init("w", torch.zeros(1))
        if kv.rank:
            return ""
        kv._asking._timeout_s = 0.3  # from now on: what came before may take longer on a busy machine
        with pytest.raises(TimedOut) as told:
            kv.pushpull("w", torch.ones(1))
        with pytest.raises(TimedOut, match=r"the barrier by server 0 .*, which waits for worker 1"):
            kv.barrier()
        return str(told.value)

    done = threading.Event()

    def patient(kv: Any) -> str:
        said = work(kv)
        done.set() if kv.rank == 0 else done.wait(60.0)
        return said

    said = run(patient, servers=1)[0]
    assert "worker 0 waited 0.3 s for the answer to pushpull of key 'w' by server 0" in said
    assert "which waits for worker 1 (" in said


def shapes(kv: KVStore) -> None:
    kv.init("w", torch.zeros(1 + kv.rank))


def optimizers(kv: KVStore) -> None:
    kv.set_optimizer("sgd", lr=0.25 * (1 + kv.rank))


def codecs(kv: KVStore) -> None:
    kv.set_gradient_compression({"type": ("2bit", "fp16")[kv.rank]})


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (shapes, r"worker \d initialises key 'w' with float32 of shape \(\d,\), another worker with .*"),
        (optimizers, r"worker \d sets the optimizer SGD .*, another worker SGD .*"),
        (codecs, r"worker \d compresses with .*, another worker with .*"),
    ],
)
def test_of_workers_that_disagree_the_second_to_say_so_is_told(work: Callable[[KVStore], None], told: str) -> None:
    refusals: list[str] = []

    def incarnation(kv: KVStore) -> None:
        try:
            work(kv)
        except ConfigError as error:
            refusals.append(str(error))
            raise

    with pytest.raises(PacelineError):
        run(incarnation, servers=1)
    assert len(refusals) == 1
    assert re.fullmatch(f"{told}: give all.* the same", refusals[0])
