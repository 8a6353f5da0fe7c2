"""States that are put into a key have no more names than an optimizer has."""

from __future__ import annotations

from typing import Any

import torch

from paceline.engine.vectors.flat import Flat
from paceline.runtime.kvstore import messages as m
from paceline.runtime.kvstore.key import NAME_CHARACTERS_MAX, TENSORS_MAX
from paceline.runtime.kvstore.optimizers import Updater
from tests.runtime.kvstore.one_server import Server

ZEROS = Flat.wrap(torch.zeros(2))


ADAM = Updater(name="Adam").to_json()


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
