"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.collectives.three_workers import Workers

STRIP_BYTES = 64


TWO_HOSTS = ((0, 2), (1,))


@pytest.fixture
def three() -> Iterator[Workers]:
    workers = Workers(3)
    yield workers
    workers.close()
