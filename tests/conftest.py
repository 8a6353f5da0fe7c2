"""Two processes of pytest and all that they start share the cores of one machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.launch.warm import Warm

# Threads of OpenMP that wait for work shall sleep: by default they spin, and take the time from those who have work.
# Before torch is imported, here and in whatever a test starts.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

settings.register_profile("shared machine", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """What starts `paceline train` in no time."""
    with Warm() as warm:
        yield warm
