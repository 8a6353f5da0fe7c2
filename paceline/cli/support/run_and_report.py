"""What the verbs that run something share: signals, and the exit codes they lead to.

    signal                          while the run goes on             exit code
    SIGINT, SIGTERM, SIGHUP, first  the run stops and keeps its model 130, 143, 129
    the same, a second time         the run ends at once              130, 143, 129
    SIGHUP under nohup              nothing: it stays ignored

`run` makes one run and raises where a signal ended it; `run_and_report` and `run_scripts` also print what it came
to. Before a run begins `ending_in_order` holds instead: nothing is there yet that would be worth keeping.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from paceline.checkpoint.folder_store import MODEL
from paceline.core.errors import PacelineError
from paceline.observe.formatting import number_format
from paceline.observe.formatting.wrapping import columns, wrapped_lines
from paceline.observe.runs.summary import Summary, WorkerSummary

# A shell reports 128 plus the number of a signal for a process that the signal ended; these codes are the same.
EXIT_CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143}
"""Exit codes by signal: 128 and its number, as shells have it."""
WILD_SHARE = 0.1
"""A worker is named in the report where more than this share of its exchanges were wild: far longer than most."""


class Runner(Protocol):
    """Describes one run that has not begun, live or in virtual time."""

    def run(self) -> Summary:
        """Makes the run and returns its summary. Raises PacelineError."""

    def interrupt(self, signal: str) -> None:
        """Ends the run; a signal handler calls it. The first call stops it and keeps what there is, the second ends it
        at once."""

    @property
    def interrupted(self) -> str:
        """Returns the signal that ended the run, or ""."""

    @property
    def left(self) -> Mapping[str, Sequence[str]]:
        """Returns the names of the files that the run has left, by folder."""


class RunInterrupted(Exception):  # noqa: N818  not a fault
    """A signal ended the run; `summary` is what there is of it, if anything."""

    def __init__(self, signal: str, summary: Summary | None) -> None:
        super().__init__(signal)
        self.exit_code = EXIT_CODES[signal]
        self.summary = summary


def run(runner: Runner) -> Summary:
    """Makes one run and returns its summary.

    Raises PacelineError with the first cause of a failure, and RunInterrupted after Ctrl-C, SIGTERM or SIGHUP. A
    failure that follows a signal counts as interrupted: parties that are ended lose connections, and that is no
    fault to report.
    """
    with _signals(runner.interrupt):
        try:
            summary = runner.run()
        except PacelineError:
            if runner.interrupted:
                raise RunInterrupted(runner.interrupted, None) from None
            raise
        except KeyboardInterrupt:
            raise RunInterrupted(runner.interrupted or "SIGINT", None) from None
    if runner.interrupted:
        raise RunInterrupted(runner.interrupted, summary)
    return summary


def run_and_report(runner: Runner) -> int:
    """Makes one run and prints what it came to. Returns the exit code, which is 1 where its model could not be saved
    anywhere."""
    try:
        summary = run(runner)
    except RunInterrupted as end:
        if end.summary:
            show(report(end.summary, runner.left))
        print("paceline: interrupted", file=sys.stderr)
        return end.exit_code
    left = runner.left
    show(report(summary, left))
    if summary.test_accuracy is None or any(MODEL in names for names in left.values()):
        return 0
    print(f"paceline: {MODEL} could not be saved anywhere", file=sys.stderr)
    return 1


def show(lines: str) -> None:
    """Prints them; on a terminal lines that are too long go on between two words."""
    print(wrapped_lines(lines, columns()) if sys.stdout.isatty() else lines)


def run_scripts(runner: Runner, close: Callable[[], None] = lambda: None) -> int:
    """Makes one run of somebody's own scripts, and prints what it came to in two lines. Returns the exit code.

    `close` shows what is held back of what the scripts have printed.
    """
    try:
        try:
            summary = run(runner)
        finally:
            close()
    except RunInterrupted as end:
        print("paceline: interrupted", file=sys.stderr)
        return end.exit_code
    steps = ", ".join(f"{worker.rank}: {worker.steps}" for worker in summary.workers)
    warning = f"{summary.warning}\n" if summary.warning else ""
    reported = f", accuracy {number_format.accuracy_text(summary.test_accuracy)}" if summary.test_accuracy else ""
    show(
        f"{summary.scheme}: {summary.seconds:.1f} s, {summary.samples} samples{reported}; steps by worker: {steps}\n"
        f"{warning}{number_format.left_text(runner.left)}"
    )
    return 0


def report(s: Summary, left: Mapping[str, Sequence[str]]) -> str:
    """Returns three lines: how it ended, where the time went, what it left; and one for each worker with bad
    numbers."""
    accuracy = "no evaluation"
    if s.test_accuracy is not None:
        accuracy = f"test accuracy {number_format.accuracy_text(s.test_accuracy)}"
    elif s.test_loss is not None:
        accuracy = f"test loss {number_format.loss_with_perplexity(s.test_loss, s.perplexity)}"
    reached = ""
    if s.target is not None:
        reached = (
            f", target {s.target} missed"
            if s.seconds_to_target is None
            else f", target {s.target} reached after {number_format.seconds_text(s.seconds_to_target)}"
        )
    shares = s.shares
    hidden = "" if s.hidden is None else f" ({number_format.percent(s.hidden)} of it hidden)"
    goodput = "" if s.goodput is None else f"; goodput {number_format.percent(s.goodput)}"
    dropped = f" ({s.dropped} of them dropped)" if s.dropped else ""
    faults = "".join(f"{line}\n" for line in faults_of(s))
    warning = f"{s.warning}\n" if s.warning else ""
    return (
        f"{s.scheme}: {accuracy}{reached}; {number_format.seconds_text(s.seconds)}, {s.samples} samples{dropped}, "
        f"{s.samples_per_second:.0f} samples/s (ended by: {s.reason})\n"
        f"time of the workers: computing {number_format.percent(shares.computing)}, "
        f"waiting {number_format.percent(shares.waiting)}, "
        f"communicating {number_format.percent(shares.communicating)}{hidden}{goodput}\n"
        f"{faults}{warning}{number_format.left_text(left)}"
    )


def faults_of(s: Summary) -> Iterator[str]:
    """Yields a line for the workers of which something was refused, and one for those with one push in ten wild."""
    # Workers that were refused are left out of the second line: one line for each worker is enough to find it.
    refused = [w for w in s.workers if w.refused]
    if refused and s.servers:
        counts = _counts(refused, [w.refused for w in refused])
        yield f"{counts[0]} refused {counts[1]}, for bad numbers or false claims; the reasons are in trace.jsonl"
    elif refused:
        counts = _counts(refused, [w.refused for w in refused], by="workers")
        yield f"{counts[0]} left out {counts[1]}, for NaN or infinity; each is in trace.jsonl"
    wild = [w for w in s.workers if not w.refused and w.wild > WILD_SHARE * w.exchanges]
    if wild:
        yield f"{_unusual(wild)} were unusually large and were used; --gate reject drops such gradients"


def _unusual(workers: Sequence[WorkerSummary]) -> str:
    """Returns `worker 3 (cpu): 7 of 50 gradients`, or the same of several workers."""
    of = f"{sum(w.wild for w in workers)} of {sum(w.exchanges for w in workers)} gradients"
    if len(workers) == 1:
        return f"worker {workers[0].rank} ({workers[0].device}): {of}"
    ranks = number_format.ranks_text(w.rank for w in workers)
    return f"{len(workers)} workers ({ranks}): {of} ({number_format.range_text([w.wild for w in workers])} of each)"


def _counts(workers: Sequence[WorkerSummary], counts: Sequence[int], by: str = "servers") -> tuple[str, str]:
    """Returns, of one worker, `worker 3 (cpu): of 50 exchanges the servers` and `7`; of several workers their sums."""
    of = number_format.counted(sum(w.exchanges for w in workers), "exchange")
    if len(workers) == 1:
        return f"worker {workers[0].rank} ({workers[0].device}): of {of} the {by}", str(counts[0])
    ranks = number_format.ranks_text(w.rank for w in workers)
    each = f"{number_format.range_text(counts)} of each"
    return f"{len(workers)} workers ({ranks}): of {of} the {by}", f"{sum(counts)} ({each})"


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end this process as Ctrl-C would, until a run begins, so that nothing it started is
    left.

    Only the first of them counts: a second would cut short what the first one ends. What is ignored, as SIGHUP is
    under nohup, stays so.
    """
    before: dict[signal.Signals, Any] = {}

    def end(number: int, _frame: object) -> None:
        """Exits as after that signal, so that all contexts are left in order."""
        # Further signals are ignored before the exception unwinds the contexts, since those still have processes to
        # end.
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(EXIT_CODES[signal.Signals(number).name])

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals(interrupt: Callable[[str], None]) -> Iterator[None]:
    """Passes Ctrl-C, SIGTERM and the loss of the terminal to `interrupt` by the name of the signal; restores the
    handlers after."""
    numbers = [getattr(signal, name) for name in EXIT_CODES]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        # A process under nohup keeps running without its terminal, and so does the run.
        numbers.remove(signal.SIGHUP)
    # Python runs the handler in the main thread between two bytecodes, so `interrupt` must return soon.
    before = [signal.signal(number, lambda got, _frame: interrupt(signal.Signals(got).name)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
