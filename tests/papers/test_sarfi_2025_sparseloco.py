"""Sarfi et al., Communication Efficient LLM Pre-training with SparseLoCo (2025)."""

import numpy as np
import pytest

from paceline.codec import ResidualMemory, read
from paceline.core.scheme import make
from paceline.schemes import sparseloco
from tests.codec.algorithms.coding import decoded, encoded
from tests.papers.sentences import says


def sent(beta: float, rounds: int, delta: np.ndarray) -> np.ndarray:
    """What one worker sends in that many exchanges of the same Delta."""
    codec = read(make("sparseloco", {"density": 0.25, "beta": beta}).codec)
    assert codec is not None
    memory = ResidualMemory.of(len(delta))
    return np.array([decoded(codec, encoded(codec, delta, memory), len(delta)) for _ in range(rounds)])


def test_what_is_not_sent_fades_by_beta() -> None:
    """ "e_r <- beta e_r + Delta_r" """
    assert says(sparseloco, "e_r <- beta e_r + Delta_r")
    first, second = sent(0.5, 2, np.array([4.0, 3.0, 0.0, 0.0], np.float32))
    assert first.tolist() == [4, 0, 0, 0]
    assert second.tolist() == [0, 4.5, 0, 0], "half of 3, and 3"


def test_what_all_steps_agree_on_adds_up_until_it_is_sent() -> None:
    """ "what all steps agree on adds up in e_r until it is sent" """
    assert says(sparseloco, "what all steps agree on adds up in e_r until it is sent")
    every = sent(0.95, 400, np.array([1.0, 0.5, 0.25, 0.125], np.float32)).mean(axis=0)
    assert every == pytest.approx([1.0, 0.5, 0.25, 0.125], rel=0.35)
    assert (np.diff(every) < 0).all()
