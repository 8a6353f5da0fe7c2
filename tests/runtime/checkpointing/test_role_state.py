"""What a role keeps is taken apart and put together again, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.core.role import Role, RoleContext
from paceline.engine.vectors.flat import Flat
from paceline.runtime.checkpointing.role_state import load, taken_apart, unscaled


class Keeping(Role):
    saved = ("m", "arrived", "since", "start")

    def __init__(self, w: Any) -> None:
        super().__init__(None, RoleContext(me=0, workers=(0,), w=w, update=lambda w, g, samples: w))
        self.m: Any = w * 0.0
        self.arrived, self.since, self.start = 0, [[0, 0]], "keep"


def weights() -> Flat:
    return Flat.wrap(torch.tensor([0.1, -2.0, 3.0]))


def test_vectors_keep_their_scale_and_values_their_kind() -> None:
    kept = Keeping(weights())
    kept.m, kept.arrived, kept.since = weights() * (1 / 3), 2, [[4, 5]]
    facts, vectors = taken_apart(kept.state())
    assert facts == {"arrived": 2, "since": [[4, 5]], "start": "keep"}
    plain, scales = unscaled(vectors)
    assert scales == {"m": 1 / 3}
    fresh = Keeping(weights())
    load(fresh, facts, {"m": plain["m"].value()}, scales)
    assert (fresh.m.scale, fresh.arrived, fresh.since) == (1 / 3, 2, [[4, 5]])
    assert torch.equal(fresh.m.value(), kept.m.value())


@pytest.mark.parametrize("facts", [{"arrived": "2"}, {"since": [[1]]}, {"since": 3}, {"start": 1.0}])
def test_a_value_of_another_kind_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"what Keeping keeps is damaged: {next(iter(facts))}"):
        load(Keeping(weights()), facts, {}, {})
