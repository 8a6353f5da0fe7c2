"""Bounds of what a worker may ask of a server: names, dimensions, keys, sizes."""

from __future__ import annotations

import pytest

from paceline.runtime.kvstore import messages as m
from paceline.runtime.kvstore import table
from paceline.runtime.kvstore.optimizers import Updater
from paceline.runtime.kvstore.table import KEY_CHARACTERS_MAX, OPTIMIZERS_MAX
from tests.runtime.kvstore.one_server import Server

ADAM = Updater(name="Adam").to_json()


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


def test_optimizers_are_not_numbered_without_end(server: Server) -> None:
    assert isinstance(server.answer(0, m.UseOptimizer(nth=OPTIMIZERS_MAX, updater=ADAM)), m.Done)
    assert "4096 times at most: call set_learning_rate instead" in (
        server.answer(0, m.UseOptimizer(nth=OPTIMIZERS_MAX + 1, updater=ADAM)).why
    )
