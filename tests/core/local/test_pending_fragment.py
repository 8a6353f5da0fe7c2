"""What a learner has sent of a fragment, and what it weighs."""

import numpy as np
import pytest

from paceline.core.local.pending_fragment import PendingFragment


def test_its_weight_is_tokens_times_tokens_a_step() -> None:
    assert PendingFragment(np.zeros(2), tokens=64, steps=8, samples=64).weight == 512


def test_without_a_step_it_has_a_weight_all_the_same() -> None:
    assert PendingFragment(np.zeros(2), tokens=4, steps=0, samples=4).weight == 16


def test_a_second_contribution_of_the_same_learner_is_added() -> None:
    held = PendingFragment(np.array([1.0]), tokens=8, steps=2, samples=8)
    held.add(PendingFragment(np.array([0.5]), tokens=16, steps=2, samples=12))
    assert held.delta == pytest.approx([1.5])
    assert (held.tokens, held.steps, held.samples) == (24, 4, 20)
