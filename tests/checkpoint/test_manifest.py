"""Manifests of nonsense are damaged, in one short line."""

from __future__ import annotations

import pytest

from paceline.checkpoint.manifest import Damaged, Manifest
from tests.checkpoint.test_manifest_facts import NONSENSE

DEEP = 200_000


@pytest.mark.parametrize("what", NONSENSE)
def test_a_manifest_of_nonsense_is_damaged_and_said_in_one_short_line(what: str) -> None:
    with pytest.raises(Damaged) as refused:
        Manifest.from_bytes(NONSENSE[what])
    line = str(refused.value)
    assert line.isprintable()
    assert len(line) < 120
