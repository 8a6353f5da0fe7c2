"""What the verbs that run something share: signals, and the exit codes they lead to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paceline.core.errors import PacelineError
from paceline.job.conductor import Conductor
from paceline.observe.summary import Summary

EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}


class Interrupted(Exception):  # noqa: N818  not a fault
    """A signal ended the run; `summary` is what there is of it, if anything."""

    def __init__(self, signal: str, summary: Summary | None) -> None:
        super().__init__(signal)
        self.exit_code = EXIT_CODES[signal]
        self.summary = summary


def run(conductor: Conductor) -> Summary:
    """One run. Raises RunFailed with the first cause, Interrupted after Ctrl-C or SIGTERM."""
    with _signals(conductor.interrupt):
        try:
            summary = conductor.run()
        except PacelineError:
            if conductor.interrupted:
                raise Interrupted(conductor.interrupted, None) from None
            raise
    if conductor.interrupted:
        raise Interrupted(conductor.interrupted, summary)
    return summary


@contextmanager
def _signals(interrupt: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM go to `interrupt`."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda got, _frame: interrupt(signal.Signals(got).name)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
