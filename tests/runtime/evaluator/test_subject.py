"""A loop's own evaluation: an accuracy, or figures by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.runtime.evaluator.subject import figures_of


@pytest.mark.parametrize(
    ("found", "figures"), [(0.5, (0.5, 0.0)), ({"loss": 2}, (0.0, 2.0)), (torch.tensor(1.0), (1.0, 0.0))]
)
def test_an_accuracy_or_figures_by_name(found: Any, figures: tuple[float, float]) -> None:
    assert figures_of(found) == figures


@pytest.mark.parametrize(
    ("found", "words"), [(None, "returned None: return"), (97.5, "from 0 to 1"), ({"f1": 1}, "return an accuracy")]
)
def test_what_it_returns_is_checked(found: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        figures_of(found)
