"""Shows a run while it goes on: a live table on a terminal, a line every few seconds in a log file.

A display is given snapshots as often as the run cares to make them, and draws as many as a reader can use. The rule
of this file: a display never makes the run wait. A stopped terminal or a full pipe gets fewer lines.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from paceline.observe.formatting.number_format import accuracy_text, count_text, loss_text, percent, seconds_text

LINES_MAX = 1000
"""Lines that wait for a reader at most; then the oldest are dropped."""
PLAIN_WORKERS_MAX = 16
"""Workers up to which a log line names each; with more, their spread says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """Describes one worker now. computing, communicating, waiting: shares of its time so far, each between 0 and 1.

    hidden: the share of its communication that it did not wait for, None where none was hidden.
    """

    rank: int
    device: str
    slowdown: float
    steps: int
    samples_per_second: float
    computing: float
    waiting: float
    communicating: float
    hidden: float | None = None
    staleness_mean: float | None = None
    staleness_max: int | None = None
    state: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSnapshot:
    """Describes a run now.

    fraction_done   of the run, 0 to 1; None where the end cannot be foreseen, and so is seconds_left
    epochs          None where nobody knows how long one is
    loss            of a script that reports no accuracy
    samples_before  those among `samples` that were trained before the run was resumed
    """

    scheme: str
    elapsed_s: float
    samples: int
    epochs: float | None
    workers: tuple[WorkerRow, ...]
    accuracy: float | None = None
    loss: float | None = None
    target: float | None = None
    fraction_done: float | None = None
    samples_before: int = 0
    seconds_left: float | None = None

    @property
    def samples_per_second(self) -> float:
        """Returns the mean throughput since `elapsed_s` began."""
        return max(0, self.samples - self.samples_before) / self.elapsed_s if self.elapsed_s > 0 else 0.0


class ProgressDisplay(Protocol):
    """Shows snapshots of a run."""

    def begin(self, lines: Sequence[str]) -> None:
        """Shows lines about how the run is set up, or what happened in it, above the snapshots."""

    def show(self, snapshot: ProgressSnapshot) -> None:
        """Shows where the run is now. It must not wait: the run's own thread calls it."""

    def close(self) -> None:
        """Draws the last snapshot if it was held back; nothing is shown afterwards."""


class Throttle:
    """Forwards at most one snapshot every `interval_s` of the reader's time, and the last one at the end."""

    def __init__(self, draw: Callable[[ProgressSnapshot], None], interval_s: float, clock: Callable[[], float]) -> None:
        self._draw = draw
        self._interval_s = interval_s
        self._clock = clock
        self._due = clock()
        self._held: ProgressSnapshot | None = None

    def show(self, snapshot: ProgressSnapshot) -> None:
        """Shows a snapshot, or keeps it until the interval is over; only the newest is kept."""
        self._held = snapshot
        now = self._clock()
        if now >= self._due:
            self._due = now + self._interval_s
            self.flush()

    def flush(self) -> None:
        """Draws the snapshot that was held back, if any."""
        if self._held is not None:
            held, self._held = self._held, None
            self._draw(held)


def has_room(stream: TextIO) -> bool:
    """Returns True if `stream` takes a line at once, as far as the system tells. A full pipe and a stopped terminal do
    not."""
    try:
        return bool(select.select([], [stream], [], 0)[1])
    except (OSError, ValueError):  # no file of the system's
        return True


class Lines:
    """Writes lines to a stream that somebody may read slowly, or never: they wait here, and the run waits for nobody.

    Of more than LINES_MAX that wait the oldest are dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: deque[str] = deque(maxlen=LINES_MAX)
        self._lock = threading.Lock()

    def say(self, *lines: str) -> None:
        """Writes lines, after those that wait. Any thread may call it."""
        with self._lock:
            self._waiting.extend(lines)
            while self._waiting and has_room(self._stream):
                print(self._waiting.popleft(), file=self._stream, flush=True)

    @property
    def behind(self) -> bool:
        """Returns True if there are lines that nobody has taken."""
        self.say()
        return bool(self._waiting)


class PlainView:
    """Writes one line every `interval_s` seconds, for logs and pipes."""

    def __init__(self, stream: TextIO, interval_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = Lines(stream)
        self._throttle = Throttle(self._draw, interval_s, clock)

    def begin(self, lines: Sequence[str]) -> None:
        """Prints lines before the first snapshot."""
        self._lines.say(*lines)

    def show(self, snapshot: ProgressSnapshot) -> None:
        """Prints a line, if the last one is some seconds old."""
        self._throttle.show(snapshot)

    def close(self) -> None:
        """Prints the last snapshot."""
        self._throttle.flush()

    def _draw(self, snapshot: ProgressSnapshot) -> None:
        """Prints a line, unless the reader is behind: a later line tells more."""
        if not self._lines.behind:  # a later one tells more
            self._lines.say(plain_line(snapshot))


class LiveView:
    """Redraws a table in place. What the program prints meanwhile appears above it."""

    def __init__(self, console: Any, interval_s: float = 0.2, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self._live = Live(console=console, auto_refresh=False)
        self._throttle = Throttle(self._draw, interval_s, clock)

    def begin(self, lines: Sequence[str]) -> None:
        """Prints lines above the table."""
        for line in lines:
            self._live.console.print(line, highlight=False, markup=False)

    def show(self, snapshot: ProgressSnapshot) -> None:
        """Draws the table anew, a few times a second at most."""
        self._throttle.show(snapshot)

    def close(self) -> None:
        """Draws the last snapshot, and gives the terminal back."""
        self._throttle.flush()
        self._live.stop()

    def _draw(self, snapshot: ProgressSnapshot) -> None:
        """Draws the table, unless the terminal has no room for more output at the moment."""
        from paceline.observe.terminal.worker_table import live_table

        if not has_room(self._live.console.file):  # type: ignore[arg-type]
            return
        ascii_only = self._live.console.options.ascii_only
        self._live.start()  # harmless when it has been started before
        self._live.update(live_table(snapshot, ascii_only=ascii_only), refresh=True)


def make_display(stream: TextIO, interval_s: float = 5.0) -> ProgressDisplay:
    """Returns a live table if `stream` is a terminal that can move its cursor, else lines at most every
    `interval_s`."""
    from rich.console import Console

    console = Console(file=stream)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console)
    return PlainView(stream, interval_s)


def plain_line(snapshot: ProgressSnapshot) -> str:
    """Returns a snapshot as one line of a log:

    [esync]  12.0 s  epoch 3.1  accuracy 0.801 (target 0.9)  1520 samples/s  waiting 0:5% 1:4% 2:12%
    """
    parts = [f"[{snapshot.scheme}]", seconds_text(snapshot.elapsed_s)]
    if snapshot.epochs is not None:
        parts.append(f"epoch {snapshot.epochs:.1f}")
    if snapshot.loss is not None:
        parts.append(f"loss {loss_text(snapshot.loss)}")
    if snapshot.accuracy is not None:
        target = "" if snapshot.target is None else f" (target {snapshot.target:g})"
        parts.append(f"accuracy {accuracy_text(snapshot.accuracy)}{target}")
    parts.append(f"{count_text(snapshot.samples_per_second)} samples/s")
    if snapshot.workers:
        parts.append(_waiting(snapshot.workers))
    if snapshot.fraction_done is not None:
        parts.append(f"{percent(snapshot.fraction_done)} done")
    if snapshot.seconds_left is not None:
        parts.append(f"{seconds_text(snapshot.seconds_left)} left")
    return "  ".join(parts)


def _waiting(workers: tuple[WorkerRow, ...]) -> str:
    """Returns how much of their time workers wait; of many workers the extremes and the median."""
    if len(workers) <= PLAIN_WORKERS_MAX:
        return "waiting " + " ".join(f"{w.rank}:{percent(w.waiting)}" for w in workers)
    shares = sorted(w.waiting for w in workers)
    median = percent(shares[len(shares) // 2])
    return f"waiting {percent(shares[0])} to {percent(shares[-1])}, median {median}, of {len(shares)} workers"
