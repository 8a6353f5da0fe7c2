"""What a simulated run needs to be told."""

from __future__ import annotations

import pytest

from paceline.core.errors import ConfigError
from tests.runtime.simulated.virtual_runs import setting


def test_timing_only_needs_an_end_other_than_an_accuracy() -> None:
    with pytest.raises(ConfigError, match="--timing-only trains no model"):
        setting(timing_only=True, stop={"epochs": 0, "target_accuracy": 0.9})
    with pytest.raises(ConfigError, match="--target-accuracy 0.9: with --timing-only no model is trained"):
        setting(timing_only=True, stop={"epochs": 1, "target_accuracy": 0.9})
