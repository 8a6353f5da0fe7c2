"""Writes checkpoints on a simulated disk that fails, and checks what a run would be resumed from.

A seed draws the files, how many checkpoints are saved, and what the disk does: it is full, it fails when it is to sync,
it lies about that, or all stops before a drawn call. Then the process was killed, or the power was cut, and in one seed
of four a byte of one file becomes another. The code that saves, rotates, finds and verifies is that of live runs
(`paceline.checkpoint.folder_store`).

    always                      what is taken is just what was written under its number, and finite
    unless the disk lied        it is the newest that `save` has returned for, or the one that was being saved; but for
                                the one in which a byte is another
    after that                  saving goes on, the newest is taken, and no rest of older ones stays
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from paceline.checkpoint.folder_store import FolderStore
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.kernel.virtual_disk import DiskFaults, PowerCut, VirtualDisk

ROOT = Path("/run/checkpoints")
KEPT = 2
ROTS_ONE_IN = 4
"""In one seed of so many a byte of one file becomes another, and nobody is told."""
CALLS_MAX = 70
"""Calls of a run that is drawn, at most, so that most of the drawn stops come within it."""


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Holds what a seed draws. `already`, `saves`: checkpoints before and under the faults; `sizes`: of their files.

    rots: at last a byte of one file becomes another.
    """

    seed: int
    sizes: tuple[int, ...]
    already: int
    saves: int
    faults: DiskFaults
    cuts_power: bool
    rots: bool = False

    def __str__(self) -> str:
        told = [f"{name}={value:g}" for name, value in _faults(self.faults)]
        end = ("power cut" if self.cuts_power else "kill") + ("; a byte becomes another" if self.rots else "")
        files = ", ".join(map(str, self.sizes))
        return (
            f"checkpoints: {self.already} saved, then {self.saves} of files of {files} bytes; {end}; {' '.join(told)}"
        )


def _faults(faults: DiskFaults) -> Sequence[tuple[str, float]]:
    plain = DiskFaults()
    names = ("capacity_bytes", "lies", "errors", "stops_at")
    return [(name, getattr(faults, name)) for name in names if getattr(faults, name) != getattr(plain, name)]


def draw(seed: int) -> CheckpointPlan:
    """Returns the plan of `seed`."""
    random = Random(f"fuzz/{seed}/disk")
    sizes = tuple(random.choice((0, 1, 511, 700, 2000)) for _ in range(random.randint(1, 3)))
    already, saves = random.randint(0, 3), random.randint(1, 3)
    kind = random.choice(("stop", "stop", "stop", "full", "errors", "lies"))
    faults = DiskFaults(
        stops_at=random.randint(1, CALLS_MAX) if kind in ("stop", "lies") else DiskFaults().stops_at,
        capacity_bytes=random.randint(0, 3 * sum(sizes) + 2000) if kind == "full" else DiskFaults().capacity_bytes,
        errors=random.choice((0.1, 0.5)) if kind == "errors" else 0.0,
        lies=random.choice((0.1, 0.5, 1.0)) if kind == "lies" else 0.0,
    )
    rots = not Random(f"fuzz/{seed}/disk-rot").randrange(ROTS_ONE_IN)
    return CheckpointPlan(seed, sizes, already, saves, faults, cuts_power=random.random() < 0.7, rots=rots)


@dataclass(slots=True)
class _Run:
    """One run: `disk`, the numbers for which `save` has returned, the one that was being saved at the end, and the one
    in which a byte is another."""

    plan: CheckpointPlan
    disk: VirtualDisk
    done: list[int] = field(default_factory=list)
    begun: int = 0
    rotten: int = 0

    def save(self, number: int) -> None:
        """Saves a checkpoint and rotates, as the evaluator does. An OSError costs this checkpoint."""
        store, self.begun = FolderStore(ROOT, self.disk), number
        pieces = {name: [data[:600], data[600:]] for name, data in self.content(number).items()}
        try:
            store.save(number, pieces, finite=True, step=number)
            self.done.append(number)
            store.rotate(KEPT, healthy=number)
        except OSError:
            pass

    def content(self, number: int) -> dict[str, bytes]:
        """Returns the files of a checkpoint: each block of each file of each checkpoint is another."""
        long = {f"part-{n}": size for n, size in enumerate(self.plan.sizes)}
        return {
            name: b"".join(f"{number}/{name}/{at:06d} ".encode() for at in range(size // 8 + 1))[:size]
            for name, size in long.items()
        }

    def taken(self) -> int | None:
        """Returns the number of the checkpoint that a run is resumed from. Raises InvariantBroken."""
        store = FolderStore(ROOT, self.disk)
        number, _ = store.newest()
        if number is not None:
            manifest = store.manifest(number)
            found = {entry.name: store.load(number, entry) for entry in manifest.files}
            if found != self.content(number) or manifest.facts != {"step": number}:
                raise self.broken(f"checkpoint {number} is taken, and is not what was written")
        return number

    def broken(self, what: str) -> InvariantBroken:
        return InvariantBroken(f"seed {self.plan.seed}: {what}; {self.plan}")


def play(plan: CheckpointPlan) -> VirtualDisk:
    """Carries a plan out; returns the disk at its end. Raises InvariantBroken."""
    run = _Run(plan, VirtualDisk(Random(f"fuzz/{plan.seed}/disk-calls")))
    run.disk.make_folder(ROOT.parent)
    for number in range(1, plan.already + 1):
        run.save(number)
    run.disk.power_on(plan.faults)
    try:
        for number in range(plan.already + 1, plan.already + plan.saves + 1):
            run.save(number)
    except PowerCut:
        pass
    if plan.cuts_power:
        run.disk.cut_power()
    run.disk.power_on()
    if plan.rots and (path := run.disk.rot()) and path.parent.name.isdigit():
        run.rotten = int(path.parent.name)
    _check_taken(run)
    _check_going_on(run)
    return run.disk


def _check_taken(run: _Run) -> None:
    number, newest = run.taken(), max(set(run.done) - {run.rotten}, default=0)
    if run.plan.faults.lies and run.plan.cuts_power:
        return  # it may have lost any of them
    if (number or 0) < newest:
        raise run.broken(f"checkpoint {number} is taken, though {newest} was saved")
    if number is not None and (number > max(newest, run.begun) or number == run.rotten):
        raise run.broken(f"checkpoint {number} is taken, which nobody has saved")


def _check_going_on(run: _Run) -> None:
    last = run.plan.already + run.plan.saves
    for number in range(last + 1, last + KEPT + 2):
        run.save(number)
    if run.taken() != number:
        raise run.broken(f"checkpoint {number} was saved last, and {run.taken()} is taken")
    left = sorted(run.disk.names(ROOT))
    if left != [f"{kept:08d}" for kept in range(number - KEPT + 1, number + 1)]:
        raise run.broken(f"of {KEPT} checkpoints to keep there are {', '.join(left)}")
