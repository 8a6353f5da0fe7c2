"""Replays what the machines of workers, servers and the evaluator decided in a recorded run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.live.recording.coordinator_replay import RecordedInput, ReplayedInput, inputs_of
from paceline.live.recording.party_decisions import DECISIONS
from paceline.live.recording.party_replay import PartyReplay
from paceline.live.recording.recording_file import FOLDER, FORMAT, read_recording


@dataclass(frozen=True, slots=True)
class PartyRecording:
    """Holds what one incarnation of a party was asked and decided."""

    path: Path
    who: Party
    incarnation: int
    inputs: tuple[RecordedInput, ...]

    @property
    def title(self) -> str:
        """Returns the party and its incarnation, for people."""
        return f"{self.who}, incarnation {self.incarnation}" if self.incarnation else str(self.who)

    def replay(self) -> Iterator[ReplayedInput]:
        """Yields each question with what is decided now. Raises ConfigError for one that this version does not know."""
        machines = PartyReplay(self.who, self.incarnation)
        return map(machines.take, self.inputs)


def party_recordings(run: Path) -> list[PartyRecording]:
    """Reads the recordings of all parties in the folder of a run, or that of one in a file. Raises ConfigError."""
    files = sorted((run / FOLDER).glob(f"*{DECISIONS}")) if run.is_dir() else [run]
    return [_read(file) for file in files]


def is_party_recording(path: Path) -> bool:
    """Returns True for a file with the decisions of a party, also for one that is kept as text."""
    return path.name.endswith(DECISIONS) or path.name.endswith(DECISIONS.removesuffix(".gz"))


def _read(file: Path) -> PartyRecording:
    lines = read_recording(file)
    match next(lines, None):
        case {"format": format, "party": str() as who, "incarnation": int() as incarnation} if format == FORMAT:
            return PartyRecording(file, Party.parse(who), incarnation, tuple(inputs_of(lines)))
    raise ConfigError(f"{file}: no recording of a worker, a server or the evaluator by this version of Paceline")
