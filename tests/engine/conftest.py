"""Where real data may lie; tests that want it skip cleanly without."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

_BESIDE_THE_CHECKOUT = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """`real_data("mnist")` is the folder that holds its files; skips the test when there is none."""

    def folder(name: str) -> Path:
        given = os.environ.get("PACELINE_TEST_DATA")
        path = Path(given) / name if given else _BESIDE_THE_CHECKOUT / name
        if not path.is_dir():
            pytest.skip(f"no {name} files: set PACELINE_TEST_DATA to a folder that holds {name}/")
        return path

    return folder
