"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.control.scene import Scene
from tests.live.fakes import net_threads


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()
    assert net_threads() == []
