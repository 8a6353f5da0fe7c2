"""A run is recorded if it asks for that, and never shows the recording of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.coordination.party import COORDINATOR, worker
from paceline.live.recording.coordinator_recorder import CoordinatorRecorder, NoCoordinatorRecorder
from paceline.runtime.run_folder.run_recording import coordinator_recorder, recording_path
from paceline.runtime.spec.coordinator_setup import CoordinatorSetup
from tests.runtime.one_process import config_for


@pytest.mark.parametrize("record", [False, True])
def test_a_run_is_recorded_if_it_asks_for_that(tmp_path: Path, record: bool) -> None:
    config = config_for(tmp_path, steps=1)
    object.__setattr__(config.run, "record", record)
    old = recording_path(tmp_path, worker(0))
    old.parent.mkdir()
    old.write_text("of another run")
    setup = CoordinatorSetup(config=config, train_samples=1, evaluator=True, trains=True)
    recorder = coordinator_recorder(setup, lambda line: None)
    recorder.close()
    assert isinstance(recorder, CoordinatorRecorder if record else NoCoordinatorRecorder)
    assert recording_path(tmp_path, COORDINATOR).exists() == record
    assert old.exists() != record
