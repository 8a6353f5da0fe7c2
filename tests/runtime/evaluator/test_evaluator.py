"""The evaluator in a whole run: what it does while a checkpoint waits for the end of a round."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from paceline.checkpoint.folder_store import FolderStore
from paceline.core.coordination import control_messages as control
from paceline.live.control.session import Session
from paceline.runtime.checkpointing.writer import CheckpointWriter
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for


@pytest.mark.parametrize("every_exchanges", [0, 1])
def test_evaluations_go_on_while_a_checkpoint_waits_for_the_end_of_a_round(
    threads: Runner, out: Path, monkeypatch: pytest.MonkeyPatch, every_exchanges: int
) -> None:
    evaluations, held = itertools.count(), threading.Semaphore(0)
    seen: list[tuple[int, int]] = []
    tell, captures = Session.tell, CheckpointWriter._captured

    def tells(session: Session, message: Any) -> None:
        tell(session, message)
        if isinstance(message, control.EvaluationReport):
            next(evaluations)
            held.release()

    def captures_late(writer: CheckpointWriter) -> Any:
        """Waits for two more evaluations, unless the run is over, and captures then."""
        while held.acquire(blocking=False):
            pass
        waited = [held.acquire(timeout=0.5 if seen else 30.0) for _ in range(2)]
        seen.append((sum(waited), len(waited)))
        return captures(writer)

    monkeypatch.setattr(Session, "tell", tells)
    monkeypatch.setattr(CheckpointWriter, "_captured", captures_late)
    often: dict[str, Any] = {"every": 0.01, "every_exchanges": every_exchanges}
    threads(
        config_for(
            out,
            scheme="diloco",
            steps=400,
            checkpoint={"every": 0.01},
            evaluation=often,
            cluster={"step_ms": 10.0},
            diloco={"h": 4},
        )
    )
    assert seen[0] == (2, 2)
    assert FolderStore(out / "checkpoints").numbers()
