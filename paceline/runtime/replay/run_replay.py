"""Replays the coordinator of a recorded run, made anew of the configuration that is in the recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.core.coordination import party
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.errors import ConfigError, PacelineError
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.executor import CoordinatorListener
from paceline.live.coordinator.inputs import CoordinatorObserver
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Transport
from paceline.live.recording.coordinator_replay import CoordinatorReplay, RecordedInput, ReplayedInput, inputs_of
from paceline.live.recording.message_text import raised
from paceline.live.recording.recording_file import FOLDER, read_recording
from paceline.runtime.run_folder.run_recording import recording_path
from paceline.runtime.server.snapshot_policy import SnapshotPolicy
from paceline.runtime.spec.coordinator_setup import CoordinatorSetup
from paceline.runtime.supervisor.coordinator_factory import make_coordinator


@dataclass(frozen=True, slots=True)
class CoordinatorRecording:
    """Holds the recording of a run's coordinator."""

    path: Path
    header: Any
    setup: CoordinatorSetup
    inputs: tuple[RecordedInput, ...]

    def replay(self) -> Iterator[ReplayedInput]:
        """Yields each input with what the coordinator of this version of Paceline decides.

        Raises ConfigError for an input that this version does not know. An exception of the machine itself is one of
        its outputs, and ends the replay.
        """
        machine = self._machine()
        for recorded in self.inputs:
            try:
                yield machine.take(recorded)
            except PacelineError:
                raise
            except Exception as error:
                yield ReplayedInput(recorded, [raised(error)])
                return

    def rewritten(self) -> Iterator[Any]:
        """Yields the lines of a recording of the same inputs, with what is decided now."""
        yield self.header
        kept = False
        for replayed in self.replay():
            recorded = replayed.recorded
            if recorded.kept != kept:
                kept = recorded.kept
                yield ["kept", kept]
            yield ["in", recorded.at, *recorded.what]
            yield from (["nested", recorded.at, *what] for what in recorded.nested)
            yield ["out", replayed.outputs]

    def _machine(self) -> CoordinatorReplay:
        cluster = self.setup.config.cluster

        def make(
            transport: Transport,
            node: Node,
            listener: CoordinatorListener,
            snapshots: Snapshots,
            observer: CoordinatorObserver,
        ) -> Coordinator:
            return make_coordinator(transport, node, listener, snapshots, self.setup, observer)

        return CoordinatorReplay(make, SnapshotPolicy(cluster.snapshot_every, copies=cluster.ack == "replica"))


def coordinator_recording(path: Path) -> CoordinatorRecording:
    """Reads a recording: a file, or the one in the folder of a run. Raises ConfigError where there is none."""
    file = recording_path(path, party.COORDINATOR) if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"{path}: no {FOLDER}/{file.name}; record the run with --record, or name the file")
    lines = read_recording(file)
    header = next(lines, None)
    return CoordinatorRecording(file, header, CoordinatorSetup.of(header), tuple(inputs_of(lines)))
