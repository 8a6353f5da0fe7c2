"""Fixtures of this folder."""

from __future__ import annotations

import pytest

from paceline.engine.vectors import buffer_pool as pools
from paceline.engine.vectors.buffer_pool import Pool


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Pool:
    pool = Pool(length_min=1)
    monkeypatch.setattr(pools, "_HOST", pool)
    return pool
