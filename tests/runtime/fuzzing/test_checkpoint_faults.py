"""The code that writes checkpoints, on a simulated disk that fails at every single call; and bugs planted in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.checkpoint import base_store
from paceline.checkpoint.folder_store import FolderStore
from paceline.runtime.fuzzing.checkpoint_faults import CheckpointPlan, draw, play
from paceline.sim.kernel.virtual_disk import DiskFaults, VirtualDisk

PLAN = CheckpointPlan(0, sizes=(700, 2000), already=1, saves=2, faults=DiskFaults(), cuts_power=True)


@pytest.mark.parametrize("cuts_power", [False, True], ids=["killed", "power cut"])
def test_at_whichever_call_it_ends_what_was_saved_is_taken_whole(cuts_power: bool) -> None:
    for stops_at in range(1, 75):
        for seed in range(3 if cuts_power else 1):
            play(replace(PLAN, seed=seed, faults=DiskFaults(stops_at=stops_at), cuts_power=cuts_power))


def test_a_full_disk_costs_the_checkpoint_that_does_not_fit_and_no_other() -> None:
    for room in range(0, 12_000, 291):
        play(replace(PLAN, faults=DiskFaults(capacity_bytes=room), cuts_power=False))


def test_a_checkpoint_in_which_a_byte_is_another_is_passed_over() -> None:
    for seed in range(40):
        play(replace(PLAN, seed=seed, cuts_power=False, rots=True))
    assert sum(draw(seed).rots for seed in range(400)) in range(60, 140)
    assert "a byte becomes another" in str(replace(PLAN, rots=True))


def test_a_folder_whose_name_did_not_reach_the_disk_is_made_again() -> None:
    play(
        draw(3040)
    )  # EIO when the first checkpoint makes the folder of all; the second one is saved, then the power is cut


def test_seeds_draw_every_kind_of_fault_and_none_breaks_anything() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(150):
        plan = draw(seed)
        play(plan)
        kinds = ("capacity_bytes", "errors", "lies", "stops_at")
        drawn.update(name for name in kinds if getattr(plan.faults, name) != getattr(DiskFaults(), name))
        drawn["power cut"] += plan.cuts_power
    assert min(drawn.values()) > 8
    assert len(drawn) == 5


def files_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VirtualDisk, "sync", lambda self, content: self._call())


def names_are_not_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VirtualDisk, "settle", lambda self, folder: self._call())


def the_folder_of_checkpoints_is_not_settled(patch: pytest.MonkeyPatch) -> None:
    settle = VirtualDisk.settle
    patch.setattr(VirtualDisk, "settle", lambda self, folder: None if folder == Path("/run") else settle(self, folder))


def checksums_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(base_store.zlib, "crc32", lambda data, value=0: 0)


def the_newest_is_rotated_away_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FolderStore, "rotate", lambda self, keep, healthy: [self.delete(n) for n in self.numbers()[-2:]])


def what_is_left_of_a_failed_one_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VirtualDisk, "remove_tree", lambda self, path: None)


@pytest.mark.parametrize(
    "mutant",
    [
        files_are_not_synced,
        names_are_not_settled,
        the_folder_of_checkpoints_is_not_settled,
        checksums_are_not_compared,
        the_newest_is_rotated_away_too,
        what_is_left_of_a_failed_one_stays,
    ],
)
def test_a_planted_bug_is_found(mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)  # type: ignore[operator]
    for seed in range(200):
        try:
            play(draw(seed))
        except Exception:
            return
    pytest.fail("no seed finds it")
