"""What `--record` costs the coordinator: seconds an input, and bytes an hour.

    python benchmarks/recording.py

Drives the coordinator of tests/recordings/worker-and-server-killed.jsonl by its inputs, recorded and not in turn, and
compares CPU seconds (medians of 15 rounds). Workers report four times a second, a server and the evaluator too. Claim:
recording a run of 100 workers takes less than 10 % of one core.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _verdict import verdict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from paceline.core.coordination.party import server, worker
from paceline.core.paramserver.gated_server import Push
from paceline.live.coordinator.inputs import NO_OBSERVER
from paceline.live.protocol.transport import Envelope, Kind
from paceline.live.recording.coordinator_recorder import CoordinatorRecorder
from paceline.live.recording.coordinator_replay import CoordinatorReplay
from paceline.live.recording.party_recorder import with_recording
from paceline.live.recording.recording_file import FOLDER, RecordingWriter
from paceline.runtime.replay.run_replay import CoordinatorRecording, coordinator_recording
from paceline.runtime.server.snapshot_policy import SnapshotPolicy
from paceline.runtime.supervisor.coordinator_factory import make_coordinator

RECORDING = Path(__file__).resolve().parent.parent / "tests" / "recordings" / "worker-and-server-killed.jsonl"
ROUNDS = 15
WORKERS = 100
INPUTS_A_SECOND = 4 * 2.5  # of one worker: Progress and Records four times a second, and what servers report of it
SHARE_MAX = 0.1


def seconds_of(recording: CoordinatorRecording, recorder: CoordinatorRecorder | None) -> float:
    """Returns the CPU seconds of all inputs."""

    def make(transport: Any, node: Any, listener: Any, snapshots: Any, observer: Any) -> Any:
        own: Any = recorder or NO_OBSERVER
        kept = recorder.snapshots(snapshots) if recorder else snapshots
        return make_coordinator(transport, node, listener, kept, recording.setup, own)

    machine = CoordinatorReplay(make, SnapshotPolicy(1.0))
    began = time.process_time()
    for recorded in recording.inputs:
        machine.take(recorded)
    return time.process_time() - began


class Silent:
    """A transport that sends nothing, and a handler that does nothing."""

    me, address = worker(0), ""

    def open(self, handler: Any) -> None:
        self.handler = handler

    def send(self, to: Any, envelope: Any) -> None: ...
    def deliver(self, src: Any, envelope: Any) -> None: ...
    def close(self) -> None: ...


def a_message() -> list[float]:
    """Returns CPU seconds that one message takes in the recorder of a party, as measured in several rounds."""
    found, count = [], 2000
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, FOLDER).mkdir()
            wire: Any = Silent()
            own: Any = Silent()
            transport = with_recording(wire, Path(folder), 0, 1 << 30)
            transport.open(own)
            began = time.process_time()
            for clock in range(count // 2):
                push = Push(g=range(26122), clock=clock + 1, samples=32)
                transport.send(server(0), Envelope(Kind.CALL, push, clock))
                wire.handler.deliver(server(0), Envelope(Kind.REPLY, push, clock))
            found.append((time.process_time() - began) / count)
            transport.close()
    return found


def main() -> int:
    recording = coordinator_recording(RECORDING)
    count, plain, recorded, size = len(recording.inputs), [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "coordinator.jsonl.gz")
        for _ in range(ROUNDS):
            plain.append(seconds_of(recording, None) / count)
            recorder = CoordinatorRecorder(RecordingWriter(path, 1 << 30, recording.setup.header()))
            recorded.append(seconds_of(recording, recorder) / count)
            recorder.close()
            size = path.stat().st_size
    cost = statistics.median(recorded) - statistics.median(plain)
    share = cost * INPUTS_A_SECOND * WORKERS
    seconds = recording.inputs[-1].at
    print(f"a message of a worker or a server, sent and got: {1e6 * statistics.median(a_message()):.0f} us more each")
    print(f"an input: {1e6 * statistics.median(plain):.0f} us, recorded {1e6 * statistics.median(recorded):.0f} us")
    print(f"{count / seconds:.0f} inputs a second; {size / count:.0f} bytes an input, compressed")
    print(f"{size / seconds * 3600 / 2**20:.1f} MiB an hour, with {recording.setup.config.cluster.workers} workers")
    return verdict(f"recording {WORKERS} workers takes {share:.1%} of one core", share < SHARE_MAX)


if __name__ == "__main__":
    sys.exit(main())
