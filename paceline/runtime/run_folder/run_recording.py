"""Says where the recordings of a run lie in its folder, and begins them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.live.recording.coordinator_recorder import CoordinatorRecorder, NoCoordinatorRecorder
from paceline.live.recording.recording_file import FOLDER, SUFFIX, RecordingWriter
from paceline.runtime.spec.coordinator_setup import CoordinatorSetup


def recording_path(folder: Path, who: Party) -> Path:
    """Returns the file of the recording of `who` in the folder of a run."""
    return folder / FOLDER / f"{str(who).replace(' ', '-')}{SUFFIX}"


def coordinator_recorder(
    setup: CoordinatorSetup, lost: Callable[[str], None]
) -> CoordinatorRecorder | NoCoordinatorRecorder:
    """Begins to record the coordinator, if the run is recorded. `lost` gets a line when that ends early.

    Recordings of an earlier run in the same folder are removed, so that nobody takes them for this run's.
    """
    run = setup.config.run
    if not run.record:
        return NoCoordinatorRecorder()
    path = recording_path(Path(run.out), party.COORDINATOR)
    for old in path.parent.glob(f"*{SUFFIX}"):
        old.unlink(missing_ok=True)
    return CoordinatorRecorder(RecordingWriter(path, run.record_bytes, setup.header(), lost=lost))
