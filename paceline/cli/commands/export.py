"""`paceline export RUN --to FORMAT PATH` converts a run's trace for other tools."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from paceline.cli.support.options import Parser
from paceline.compat.esync.log_reader import esync_run
from paceline.compat.mxnet.scripts import speedometer
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.observe.export import chrome, csv_files, opentelemetry, prometheus, tensorboard
from paceline.observe.formatting.number_format import counted
from paceline.observe.runs.run_folders import RunFolder, find
from paceline.observe.trace.trace_file import TRACE

EPILOG = """formats:
  chrome         a FILE for https://ui.perfetto.dev or chrome://tracing (both look at it on your machine only): a
                 track for each worker and server, membership and decisions as marks, accuracy as a counter
  prometheus     a FILE in the text format of /metrics: counters of steps, samples, seconds by activity, a histogram of
                 staleness; docs/grafana.json is a board for it
  opentelemetry  to the OTLP receiver at the ADDRESS http://HOST:4318: a trace of spans (the run, its workers, what they
                 were at) and the same metrics; needs `pip install 'paceline[otel]'`
  tensorboard    a FOLDER for `tensorboard --logdir FOLDER`; needs `pip install tensorboard`
  mxnet          a FILE with the log lines of MXNet's training scripts, for its parse_log.py
  csv            a FOLDER with span.csv, applied.csv, evaluated.csv, ...: a row for each record

examples:
  paceline export runs/a --to chrome a.json
  paceline export runs/a --to csv a-csv
  paceline export runs/a --to tensorboard logs/a && tensorboard --logdir logs
  paceline export runs/a --to prometheus -
  paceline export runs/a --to opentelemetry http://localhost:4318

RUN may still be going on, or have been killed. PATH - is the standard output, for what is one file.
"""


def main(arguments: list[str]) -> int:
    """Writes the records of one run in another tool's format; returns 0.

    What was written is told on stderr, so that `-` leaves nothing but the data on stdout. Raises ConfigError for an
    unknown format, a folder without a run or with several, and a path that cannot be written.
    """
    parser = Parser(
        prog="paceline export", usage="paceline export RUN --to FORMAT PATH", description=__doc__, epilog=EPILOG
    )
    parser.add_argument("run", metavar="RUN", help="folder of one run")
    parser.add_argument("--to", required=True, metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("path", metavar="PATH", help="file or folder to write")
    options = parser.parse_all(arguments)
    if options.to not in FORMATS:
        raise ConfigError(f"--to {options.to}: no such format{nearest(options.to, FORMATS)}")
    run = one_run(options.run)
    try:
        told = FORMATS[options.to](run, options.path)
    # `| head` closed the pipe: main.py ends quietly for this one, and it is no fault of the path.
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"{options.path}: cannot be written ({error.strerror})") from None
    print(f"paceline: {told}", file=sys.stderr)
    return 0


def one_run(path: str) -> RunFolder:
    """Returns the run in the folder `path`. Raises ConfigError unless there is exactly one."""
    runs, _ = find([path], others=[esync_run])
    if len(runs) != 1:
        raise ConfigError(f"{path} holds {len(runs)} runs: name one, such as {runs[0].path}")
    return runs[0]


def to_chrome(run: RunFolder, path: str) -> str:
    """Writes Chrome's trace event format, which Perfetto reads; returns what to tell the user."""
    with opened(path) as out:
        count = chrome.write(out, run.records(), run.summary.workers, title=str(run.path))
    return f"{counted(count, 'event')} in {path}; open it at https://ui.perfetto.dev"


def to_prometheus(run: RunFolder, path: str) -> str:
    """Writes the metrics as text, as `/metrics` of the page shows them at the end of the run."""
    metrics = prometheus.Metrics(run=str(run.path), scheme=run.summary.scheme)
    metrics.add_all(run.records())
    with opened(path) as out:
        out.write(metrics.text())
    return f"metrics in {path}"


def to_opentelemetry(run: RunFolder, path: str) -> str:
    """Sends spans and metrics to an OTLP receiver by HTTP. Raises ConfigError where none is there."""
    if not path.startswith(("http://", "https://")):
        raise ConfigError(f"--to opentelemetry {path}: name an OTLP receiver, such as http://localhost:4318")
    about = {"run": str(run.path), "scheme": run.summary.scheme}
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # not every attempt, of which there are several
    try:
        count = opentelemetry.send(path, run.records(), about, begun_at(run))
    except opentelemetry.RefusedError:
        raise ConfigError(f"--to opentelemetry {path}: no OTLP receiver is there, or it refuses") from None
    return f"{counted(count, 'span')} and metrics to {path}"


def to_mxnet(run: RunFolder, path: str) -> str:
    """Writes the lines that MXNet's scripts log."""
    with opened(path) as out:
        count = speedometer.write(out, run, begun_at(run))
    return f"{counted(count, 'line')} in {path}; parse_log.py of MXNet makes a table of them"


def to_tensorboard(run: RunFolder, path: str) -> str:
    """Writes event files into a folder; their times are those of the run, not of this command."""
    count = tensorboard.write(Path(path), run.records(), begun_at(run))
    return f"{counted(count, 'point')} in {path}; look at them with: tensorboard --logdir {path}"


def to_csv(run: RunFolder, path: str) -> str:
    """Writes one CSV file for each kind of record into a folder."""
    return f"in {path}: {' '.join(csv_files.write(Path(path), run.records()))}"


def begun_at(run: RunFolder) -> float:
    """Returns the wall clock when training began, in seconds since 1970; 0 where there is no trace.

    The trace counts seconds from its own beginning. Its file was last written when the run ended, so the beginning is
    that moment less the run's length; a trace that was copied without its times is shifted by as much.
    """
    trace = run.path / TRACE
    return max(0.0, (trace.stat().st_mtime if trace.is_file() else 0.0) - run.summary.seconds)


@contextlib.contextmanager
def opened(path: str) -> Iterator[TextIO]:
    """Opens a file for writing; `-` is the standard output, which stays open."""
    if path == "-":
        yield sys.stdout
        return
    with Path(path).open("w", encoding="utf-8") as file:
        yield file


FORMATS: dict[str, Callable[[RunFolder, str], str]] = {
    "chrome": to_chrome,
    "csv": to_csv,
    "mxnet": to_mxnet,
    "opentelemetry": to_opentelemetry,
    "prometheus": to_prometheus,
    "tensorboard": to_tensorboard,
}
