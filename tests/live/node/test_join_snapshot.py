"""What a late worker takes over of another one's role goes over the wire and comes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from paceline.live.node.join_snapshot import picture, published_by
from tests.live.fakes import NumpyMemory


def role(**state: Any) -> Any:
    return SimpleNamespace(join_state=lambda: dict(state))


def test_numbers_and_one_vector_come_back_by_their_names() -> None:
    w = np.arange(3, dtype=np.float32)
    found = published_by(picture(role(clock=7, w=w), NumpyMemory()))
    assert found is not None
    assert found.keys() == {"clock", "w"}
    assert found["clock"] == 7
    assert found["w"] is w


def test_a_role_without_a_vector_brings_an_empty_one_that_is_not_taken_over() -> None:
    published = picture(role(clock=7), NumpyMemory())
    assert len(published.v) == 0
    assert published_by(published) == {"clock": 7}


def test_no_role_is_told_from_one_with_nothing_to_show() -> None:
    assert published_by(picture(None, NumpyMemory())) is None
    assert published_by(picture(role(), NumpyMemory())) == {}
