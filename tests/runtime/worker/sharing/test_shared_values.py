"""What one worker's loop decides reaches all workers, and nobody waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import paceline
from paceline.core.errors import ConfigError
from paceline.live.control.mailbox import SharedTexts
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.sharing.shared_values import SharedValues
from tests.runtime.own_loops import plain_sgd, plain_steps, run_loops, toy_data, toy_model

DATA = toy_data()


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_after_close_all_workers_have_what_was_shared_last(out: Path, scheme: str) -> None:
    seen: dict[int, Any] = {}

    def loop(pace: Pace, model: nn.Module) -> None:
        assert pace.decides or pace.rank > 0
        for epoch in range(3):
            plain_steps(pace, model, DATA, epochs=1, partition="auto")
            if pace.rank == 0:
                pace.share("best", {"path": f"epoch{epoch}.pt", "loss": 1.0 / (epoch + 1)})
                assert pace.shared("best")["path"] == f"epoch{epoch}.pt"
        pace.close()
        seen[pace.rank] = pace.shared("best"), pace.shared("none", "nothing")

    run_loops(out, scheme, loop)
    assert seen == {rank: ({"path": "epoch2.pt", "loss": 1 / 3}, "nothing") for rank in range(3)}


class AtSession:
    """Stands for a session, of which some workers are lost."""

    def __init__(self, lost: set[int]) -> None:
        self.lost_ranks, self.shared_values, self.told = lost, SharedTexts(), list[Any]()

    def tell(self, message: Any) -> None:
        self.told.append(message)


def test_worker_0_decides_and_while_it_is_lost_the_next_one() -> None:
    def who_decide(lost: set[int]) -> list[int]:
        return [rank for rank in range(4) if rank not in lost and SharedValues(AtSession(lost), rank).decides]  # type: ignore[arg-type]

    assert [who_decide(lost) for lost in (set(), {0}, {1}, {0, 1}, {0, 2})] == [[0], [1], [0], [2], [1]]


def test_what_is_not_json_of_another_worker_is_as_if_it_was_not_there() -> None:
    session: Any = AtSession(set())
    session.shared_values.share("it", "{")
    assert SharedValues(session, 0).get("it", "nothing") == "nothing"


def test_a_worker_that_has_left_shares_nothing(alone: None) -> None:
    model = toy_model()
    pace = paceline.join(model, plain_sgd(model.parameters()), "bsp")
    pace.share("it", 1)
    pace.close()
    assert pace.shared("it") == 1
    with pytest.raises(ConfigError, match=r"call it before pace\.close\(\)$"):
        pace.share("it", 2)


@pytest.mark.parametrize("value", [object(), "x" * 20_000])
def test_what_is_not_json_or_too_long_is_refused(value: Any, alone: None) -> None:
    model = toy_model()
    with (
        paceline.join(model, plain_sgd(model.parameters()), "bsp") as pace,
        pytest.raises(ConfigError, match=r"^pace\.share\('it', \.\.\.\): "),
    ):
        pace.share("it", value)
