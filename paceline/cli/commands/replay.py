"""`paceline replay` drives the coordinator of a recorded run again and shows the first decision that differs."""

from __future__ import annotations

from argparse import Namespace
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.support.find_run import RUNS
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError
from paceline.observe.formatting.number_format import counted

if TYPE_CHECKING:
    from paceline.live.recording.coordinator_replay import ReplayedInput
    from paceline.runtime.replay.run_replay import CoordinatorRecording

EPILOG = """A run that was recorded (`paceline train --record`, `paceline launch --record`) has the file
recording/coordinator.jsonl.gz: each message, lost connection, ended process and timer that reached the
coordinator, with its time, and what the coordinator decided. The replay makes the same coordinator of
the recorded configuration and hands it the same inputs, without processes, sockets or a clock. It needs
neither the data nor the machines of the run, and takes a second for some thousand inputs.

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

RUN is the folder that --out named, its name below runs/, or the file of a recording. docs/replay.md says
what is recorded, what is replayed, and what is not."""


def main(arguments: list[str]) -> int:
    parser = Parser(prog="paceline replay", usage="paceline replay RUN [options]", description=__doc__, epilog=EPILOG)
    parser.add_argument("run", metavar="RUN", help="folder of a recorded run, or the file of its recording")
    parser.add_argument("--transcript", action="store_true", help="print what came in and what was decided")
    parser.add_argument("--all", action="store_true", help="with --transcript: reports and timers, too")
    parser.add_argument("--input", type=int, metavar="N", help="print input N in full, and those before it")
    parser.add_argument("--before", type=int, default=12, metavar="N", help="inputs before it to print (default: 12)")
    parser.add_argument("--write", metavar="FILE", help="write the recording with the decisions of this version")
    options = parser.parse_all(arguments)
    # Imported here: the machines need a third of a second, and --help does not need them.
    from paceline.runtime.replay.run_replay import coordinator_recording

    recording = coordinator_recording(_path(options.run))
    if options.input is not None and not 1 <= options.input <= len(recording.inputs):
        raise ConfigError(f"--input {options.input}: the recording has inputs 1 to {len(recording.inputs)}")
    return _write(recording, Path(options.write)) if options.write else _replay(recording, options)


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


def _replay(recording: CoordinatorRecording, options: Namespace) -> int:
    """Replays to the end or the first difference; returns the exit code."""
    from paceline.live.recording.transcript import decided_lines, input_lines, is_routine

    print(f"{recording.path}: {_described(recording)}")
    last: deque[ReplayedInput] = deque(maxlen=max(1, options.before + 1))
    for replayed in recording.replay():
        last.append(replayed)
        if not replayed.equal:
            print(_difference(last, len(recording.inputs)))
            return 1
        if replayed.recorded.number == options.input:
            print("\n".join(_context(last)))
        if options.transcript and (options.all or not is_routine(replayed.recorded)):
            print("\n".join([*input_lines(replayed.recorded), *decided_lines(replayed.recorded.outputs)]))
    print("equal: this version of Paceline decides what was decided then")
    return 0


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
