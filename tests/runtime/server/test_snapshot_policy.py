"""From what a lost server is replaced: copies, snapshots, or nothing."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from paceline.core.coordination.control_messages import Ready
from paceline.core.scheme import names
from paceline.runtime.server.snapshot_policy import refuses
from paceline.runtime.server.snapshot_store import SnapshotStore
from paceline.runtime.spec.job_spec import Recipe

ALL = "costs nothing: what it answers is copied to the next server first"


SOME = "costs at most the updates of the last 30 s"


EARLY = "ksync answers contributions of which no copy knows yet"


ALONE = EARLY.replace("ksync", "decoupled")


NONE = "it has no snapshot (--snapshot-every 0)"


@pytest.mark.parametrize(
    ("scheme", "every_s", "copied", "note"),
    [
        ("bsp", 30.0, True, ALL),
        ("bsp", 0.0, True, ALL),
        ("ksync", 30.0, False, f"{SOME}; {EARLY}"),
        ("ksync", 0.0, False, f"ends the run: {EARLY}; {NONE}"),
        ("decoupled", 30.0, False, f"{SOME}; {ALONE}"),
        ("decoupled", 0.0, False, f"ends the run: {ALONE}; {NONE}"),
    ],
)
def test_copies_are_made_where_they_are_of_all_that_was_answered(
    scheme: str, every_s: float, copied: bool, note: str
) -> None:
    recipe = Recipe(scheme=scheme)
    snapshots = SnapshotStore(Mock(), Mock(), every_s, copies=True)
    said = Ready(length=1, fingerprint="", seconds_per_step=0.0, optimizer=recipe.to_json())
    why = snapshots.refuses(said, 2)
    assert (snapshots.copies, snapshots.note) == (copied, f"a lost server {note}")
    assert bool(why) == note.startswith("ends")


def test_which_schemes_can_go_back_to_a_snapshot() -> None:
    refused = {name: refuses(Recipe(scheme=name), 2, by_rows=False) for name in names()}
    assert {"bsp", "asp", "ssp", "dssp", "ksync", "partial", "weedout", "dcasgd", "decoupled"} == {
        name for name, why in refused.items() if not why
    }
    assert "carry means" in refused["esync"]
    assert "gsp cannot go back" in refused["gsp"]
    by_hand = Recipe(scheme="gsp", parameters={"groups": "0;1,2"})
    assert refuses(by_hand, 2, by_rows=False) == ""
    assert "tables of rows" in refuses(Recipe(scheme="asp"), 1, by_rows=True)
