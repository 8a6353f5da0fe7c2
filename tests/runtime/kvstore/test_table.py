"""No worker makes a server of a store hold more names than it could have a use for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.vectors.flat import Flat
from paceline.kvstore import KVStore
from paceline.runtime.kvstore import messages as m
from paceline.runtime.kvstore import table
from paceline.runtime.kvstore.key import NAME_CHARACTERS_MAX, TENSORS_MAX
from paceline.runtime.kvstore.optimizers import Updater
from paceline.runtime.kvstore.store_spec import StoreSpec
from paceline.runtime.kvstore.table import KEY_CHARACTERS_MAX, OPTIMIZERS_MAX, open_table
from tests.compat.mxnet.store_threads import run

ZEROS = Flat.wrap(torch.zeros(2))
ADAM = Updater(name="Adam").to_json()


class Server:
    """One of a store of one worker, without a network."""

    def __init__(self) -> None:
        node: Any = None
        self.hosted = open_table(node, StoreSpec(type="dist_async"), workers=1)

    def answer(self, slice: int, message: Any) -> Any:
        (reply,) = self.hosted[slice].role.on(0.0, 0, message)  # type: ignore[union-attr]
        return reply.message

    def declare(self, key: str, shape: tuple[int, ...] = (2,)) -> Any:
        return self.answer(0, m.Declare(key=key, shape=shape, dtype="float32", length=2))


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_key_has_a_longest_name_and_a_number_of_dimensions(server: Server) -> None:
    assert isinstance(server.declare("k" * KEY_CHARACTERS_MAX), m.Numbered)
    before = len(server.hosted)
    assert server.declare("k" * (KEY_CHARACTERS_MAX + 1)).why == f"key {'k' * 40} has 1025 characters: 1024 at most"
    assert server.declare("x", (1,) * 65).why == "key x has 65 dimensions: 64 at most"
    assert len(server.hosted) == before


def test_a_server_has_a_last_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SLICES_MAX", 5)
    assert all(isinstance(server.declare(key), m.Numbered) for key in "abc")
    assert server.declare("d").why == "a server holds 3 keys at most: start more servers"
    assert isinstance(server.declare("a"), m.Numbered), "one that is known"


def test_values_fit_into_the_memory_of_the_machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "memory_bytes", lambda: 4 << 30)
    big = m.Declare(key="big", shape=(3 << 28,), dtype="float32", length=3 << 28)
    assert isinstance(server.answer(0, big), m.Numbered)
    other = m.Declare(key="other", shape=(1 << 29,), dtype="float32", length=1 << 29)
    why = server.answer(0, other).why
    assert why.startswith("key other: with it a server's keys take 5.0 GiB, and its machine has 4.0: start servers on")
    assert server.answer(0, m.Declare(key="less", shape=(), dtype="float32", length=-1)).why == "key less has -1 values"
    assert isinstance(server.answer(0, big), m.Numbered), "one that is known"
    assert isinstance(server.declare("small"), m.Numbered)


def test_states_that_are_put_have_no_more_names_than_an_optimizer_has_tensors(server: Server) -> None:
    assert isinstance(server.answer(0, m.UseOptimizer(nth=1, updater=ADAM)), m.Done)
    key = server.declare("w").number
    assert isinstance(server.answer(key, m.BeginStore(v=ZEROS)), m.Done)

    def put(name: str) -> Any:
        return server.answer(key, m.PutTensor(name=name, v=ZEROS))

    assert "with names of up to 64 characters" in put("n" * (NAME_CHARACTERS_MAX + 1)).why
    assert all(isinstance(put(f"n{at}"), m.Done) for at in range(TENSORS_MAX))
    assert put("one more").why.startswith("key w: the optimizer has 16 tensors at most")
    assert isinstance(put("n0"), m.Done), "in place of what was there"


def test_optimizers_are_not_numbered_without_end(server: Server) -> None:
    assert isinstance(server.answer(0, m.UseOptimizer(nth=OPTIMIZERS_MAX, updater=ADAM)), m.Done)
    assert "4096 times at most: call set_learning_rate instead" in (
        server.answer(0, m.UseOptimizer(nth=OPTIMIZERS_MAX + 1, updater=ADAM)).why
    )


def test_a_script_hears_of_it_in_one_line() -> None:
    def work(kv: KVStore) -> None:
        kv.init("k" * 2000, torch.zeros(1))

    with pytest.raises(ConfigError, match="^key 'k{39} has 2002 characters: 1024 at most$"):
        run(work, workers=1)
