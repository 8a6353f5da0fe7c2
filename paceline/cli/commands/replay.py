"""`paceline replay` drives the machines of a recorded run again and shows the first decision that differs."""

from __future__ import annotations

from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.support.find_run import RUNS
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError
from paceline.observe.formatting.number_format import counted

if TYPE_CHECKING:
    from paceline.live.recording.coordinator_replay import RecordedInput, ReplayedInput
    from paceline.runtime.replay.party_recordings import PartyRecording
    from paceline.runtime.replay.run_replay import CoordinatorRecording

NAMES_MAX = 12
"""Parties that are named in a line."""

EPILOG = """A run that was recorded (`paceline train --record`, `paceline launch --record`) has the file
recording/coordinator.jsonl.gz: each message, lost connection, ended process and timer that reached the
coordinator, with its time, and what the coordinator decided. The replay makes the same coordinator of
the recorded configuration and hands it the same inputs, without processes, sockets or a clock. Then it
asks the machines of each worker and server what they were asked then: what they do with the messages of
the coordinator. It needs neither the data nor the hosts of the run, and takes a second for some thousand
inputs.

Equal means: this version of Paceline decides the same. A difference means that the code has changed
since, or that a decision depends on something that is no input, which is a bug. The lines before the
difference are what came in last; `-` is what was decided then, `+` what is decided now.

examples:
  paceline replay runs/a                        compare; exit code 0 when equal, 1 at a difference
  paceline replay runs/a --transcript           the story of the run: inputs that changed something
  paceline replay runs/a --transcript --all     every input, reports and timers too
  paceline replay runs/a --input 311            one input in full, and the 12 before it
  paceline replay runs/a --write bug-17.jsonl   the same inputs with the decisions of today, as text
  paceline replay bug-17.jsonl                  a recording that is kept as a test
  paceline replay runs/a --party server-0       what that process was sent and sent: headers, to be read
  paceline replay runs/a/recording/server-0.0.decisions.jsonl.gz    that process alone; --transcript works, too

RUN is the folder that --out named, its name below runs/, or the file of a recording. docs/replay.md says
what is recorded, what is replayed, and what is not."""


def main(arguments: list[str]) -> int:
    parser = Parser(prog="paceline replay", usage="paceline replay RUN [options]", description=__doc__, epilog=EPILOG)
    parser.add_argument("run", metavar="RUN", help="folder of a recorded run, or the file of its recording")
    parser.add_argument("--transcript", action="store_true", help="print what came in and what was decided")
    parser.add_argument("--all", action="store_true", help="with --transcript: reports and timers, too")
    parser.add_argument("--input", type=int, metavar="N", help="print input N in full, and those before it")
    parser.add_argument("--before", type=int, default=12, metavar="N", help="inputs before it to print (default: 12)")
    parser.add_argument("--party", metavar="NAME", help="print what worker-0, server-1, ... was sent and sent")
    parser.add_argument("--write", metavar="FILE", help="write the recording with the decisions of this version")
    options = parser.parse_all(arguments)
    # Imported here: the machines need a third of a second, and --help does not need them.
    from paceline.runtime.replay.run_replay import coordinator_recording

    if options.party:
        return _print_party(_path(options.run), options.party)
    from paceline.runtime.replay.party_recordings import is_party_recording, party_recordings

    path = _path(options.run)
    if is_party_recording(path):
        if options.write:
            raise ConfigError(f"--write: {path.name} is the recording of a party; name the coordinator's")
        parties = party_recordings(path)
        _check_input(options, parties[0].inputs)
        return _replay_parties(parties, options)
    recording = coordinator_recording(path)
    _check_input(options, recording.inputs)
    if options.write:
        return _write(recording, Path(options.write))
    print(f"{recording.path}: {_described(recording)}")
    if _differs(recording.inputs, recording.replay(), options):
        return 1
    print("equal: this version of Paceline decides what was decided then")
    options.input = None  # of the coordinator
    return _replay_parties(party_recordings(path), options) if path.is_dir() else 0


def _replay_parties(parties: Sequence[PartyRecording], options: Namespace) -> int:
    """Replays the machines of workers and servers, one party after the other; returns the exit code."""
    for party in parties:
        if options.transcript:
            print(f"{party.path}: {party.title}")
        if _differs(party.inputs, party.replay(), options):
            print(f"in {party.path}: {party.title}")
            return 1
    if parties:
        decisions = counted(sum(len(party.inputs) for party in parties), "decision")
        print(f"equal: {decisions} of {counted(len(parties), 'process')}: {_names(parties)}")
    return 0


def _names(parties: Sequence[PartyRecording]) -> str:
    names = [party.title for party in parties]
    return "; ".join(names if len(names) <= NAMES_MAX else [*names[:NAMES_MAX], "..."])


def _check_input(options: Namespace, inputs: Sequence[RecordedInput]) -> None:
    if options.input is not None and not 1 <= options.input <= len(inputs):
        raise ConfigError(f"--input {options.input}: the recording has inputs 1 to {len(inputs)}")


def _print_party(folder: Path, name: str) -> int:
    """Prints the recordings of all incarnations of a party, in their order. Raises ConfigError where there are none."""
    from paceline.live.recording.party_decisions import DECISIONS
    from paceline.live.recording.recording_file import FOLDER, SUFFIX, read_recording
    from paceline.live.recording.transcript import party_line

    there = [file for file in (folder / FOLDER).glob(f"*{SUFFIX}") if not file.name.endswith(DECISIONS)]
    files = [file for file in sorted(there) if file.name.split(".")[0] == name]
    if not files or name == "coordinator":
        names = sorted({file.name.split(".")[0] for file in there} - {"coordinator"})
        raise ConfigError(f"--party {name}: {folder} has recordings of {', '.join(names) or 'no party'}")
    for file in sorted(files, key=lambda file: (file.name.split(".")[1], ".old" not in file.name)):
        print(file)
        _, *lines = read_recording(file)
        print("\n".join(map(party_line, lines)))
    return 0


def _write(recording: CoordinatorRecording, path: Path) -> int:
    """Writes the recording with what is decided now. Raises ConfigError where it cannot be written."""
    from paceline.live.recording.message_text import json_of

    lines = [json_of(line) for line in recording.rewritten()]
    try:
        path.write_text("\n".join([*lines, ""]), encoding="utf-8", errors="surrogatepass")
    except OSError as error:
        raise ConfigError(f"--write {path}: {error.strerror}") from None
    print(f"{path}: {counted(len(recording.inputs), 'input')}, with the decisions of this version")
    return 0


def _path(run: str) -> Path:
    """Returns the folder or file that is meant. Raises ConfigError."""
    for path in (Path(run), RUNS / run):
        if path.exists():
            return path
    raise ConfigError(f"{run}: no such folder or file, nor below runs/")


def _differs(inputs: Sequence[RecordedInput], replay: Iterable[ReplayedInput], options: Namespace) -> bool:
    """Replays to the end or the first difference, which it prints; returns True if there is one."""
    from paceline.live.recording.transcript import decided_lines, input_lines, is_routine

    last: deque[ReplayedInput] = deque(maxlen=max(1, options.before + 1))
    for replayed in replay:
        last.append(replayed)
        if not replayed.equal:
            print(_difference(last, len(inputs)))
            return True
        if replayed.recorded.number == options.input:
            print("\n".join(_context(last)))
        if options.transcript and (options.all or not is_routine(replayed.recorded)):
            print("\n".join([*input_lines(replayed.recorded), *decided_lines(replayed.recorded.outputs)]))
    return False


def _described(recording: CoordinatorRecording) -> str:
    setup, inputs = recording.setup, recording.inputs
    cluster = setup.config.cluster
    seconds = inputs[-1].at if inputs else 0.0
    parties = f"{counted(cluster.workers, 'worker')}, {counted(cluster.servers, 'server')}"
    return f"coordinator, {setup.config.run.scheme}, {parties}; {counted(len(inputs), 'input')} in {seconds:.1f} s"


def _context(last: deque[ReplayedInput]) -> list[str]:
    from paceline.live.recording.transcript import decided_lines, input_lines

    return [line for one in last for line in (*input_lines(one.recorded), *decided_lines(one.recorded.outputs))]


def _difference(last: deque[ReplayedInput], total: int) -> str:
    """Returns the text about the last of these inputs, at which the machine decides something else."""
    from paceline.live.recording.transcript import difference_lines

    here = last.pop()
    title = f"first difference: input {here.recorded.number} of {total}, {here.recorded.at:.3f} s after the beginning"
    return "\n".join([title, *_context(last), *difference_lines(here)])
