"""`paceline fuzz` runs schemes under random faults in virtual time, until an invariant is violated."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable

from paceline.cli.commands.race import chosen
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.scheme import make
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.fuzzing.fuzz import FuzzPlan, draw, play
from paceline.sim.fuzzing.random_parameters import schemes_of

EPILOG = """The schemes are the same code as in a live run. A seed draws one of them, with parameters such
that a short run comes by all that it does; a cluster of 2 to 6 workers and 0 to 3 servers; links
that lose, repeat, delay and reorder messages; and faults: crashes, restarts, pauses and one-way cuts
(some so long that a worker that still runs is declared dead), resets, torn writes, full disks, clocks
that jump, workers that leave. Invariants watch every event; when the faults are over everybody must
go on. Some seeds also slow a worker down for a while: throughput must come back. docs/fuzzing.md
says what is injected and what is watched.

examples:
  paceline fuzz                                   for 60 seconds
  paceline fuzz --seeds 20000 --first 1000        seeds 1000 to 20999
  paceline fuzz --schemes hybrid --seconds 10     phases of drawn schemes
  paceline fuzz --schemes bsp,ssp --defaults      these schemes, with their default parameters
  paceline fuzz --seed 4711                       one seed, with what it drew and the hash of its trace

Ends at the first violation, with the seed and the command that plays it again. The same command
gives the same hash on every machine."""

PROGRESS_EVERY_S = 2.0
"""Seconds between two lines of progress."""


def main(arguments: list[str]) -> int:
    """Plays seeds until one breaks an invariant, the time is over or the last one is done; returns the exit code.

    0 where no invariant was violated, else 1. Raises ConfigError for options that contradict one another.
    """
    parser = Parser(prog="paceline fuzz", description=__doc__, epilog=EPILOG)
    parser.add_argument("--seconds", type=float, help="duration in seconds (default: 60)")
    parser.add_argument("--seeds", type=int, help="number of seeds, instead of --seconds")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="run this seed only, and show what it draws")
    parser.add_argument("--schemes", default="all", help="names separated by commas, or all (default: all)")
    parser.add_argument(
        "--defaults", action="store_true", help="use the schemes' default parameters instead of random ones"
    )
    options = parser.parse_all(arguments)
    if (options.seconds is not None) + (options.seeds is not None) + (options.seed is not None) > 1:
        raise ConfigError("--seconds, --seeds and --seed: give one of them")
    for name in ("seconds", "seeds", "first", "seed"):
        if (getattr(options, name) or 0) < 0:
            raise ConfigError(f"--{name} {getattr(options, name)}: must be 0 or more")
    names = chosen(options.schemes)
    again = "" if options.schemes == "all" else f" --schemes {options.schemes}"
    if options.defaults:
        defaults = [make(name, {}) for name in names]
        return _run(options, lambda seed: draw(seed, defaults), f"{again} --defaults")
    return _run(options, lambda seed: draw(seed, schemes_of(seed, names)), again)


def _run(options: Namespace, plan_of: Callable[[int], FuzzPlan], again: str) -> int:
    """Shows one seed, or plays many; `again` is what the printed command must repeat besides the seed.

    `plan_of` makes the plan of a seed. It must depend on nothing else, or the seed would not play the same run again.
    """
    if options.seed is not None:
        return _show(plan_of(options.seed))
    last = None if options.seeds is None else options.first + options.seeds
    deadline = None if last is not None else time.monotonic() + (60.0 if options.seconds is None else options.seconds)
    return Campaign(plan_of, again).run(_seeds(options.first, last, deadline))


def _show(plan: FuzzPlan) -> int:
    """Plays one seed and prints what it drew, what happened and the hash of its trace; returns the exit code."""
    print(f"seed {plan.seed}: {plan}")
    try:
        outcome = play(plan)
    except (InvariantBroken, PacelineError) as error:
        print(f"VIOLATION: {error}")
        return 1
    print(f"{outcome.events} events, {outcome.seconds:.1f} simulated seconds; {_listed(outcome.faults)}")
    print(f"trace {outcome.digest}; no violation")
    return 0


def _seeds(first: int, last: int | None, deadline: float | None) -> Iterable[int]:
    """Yields seeds from `first` up to `last`, or until `deadline` of the monotonic clock.

    Where both are None there is no end.
    """
    seed = first
    while (last is None or seed < last) and (deadline is None or time.monotonic() < deadline):
        yield seed
        seed += 1


def _listed(faults: Counter[str]) -> str:
    """Returns how often each kind of fault was injected, the most frequent first."""
    return ", ".join(f"{count} {kind}" for kind, count in faults.most_common()) or "no faults"


class Campaign:
    """Plays many seeds and counts what came of them."""

    def __init__(self, plan_of: Callable[[int], FuzzPlan], again: str) -> None:
        self._plan_of, self._again = plan_of, again
        self._began = self._told = time.monotonic()
        self.seeds = self.events = 0
        self.simulated_s = 0.0
        self.faults: Counter[str] = Counter()

    def run(self, seeds: Iterable[int]) -> int:
        """Plays `seeds` in order and returns the exit code: 1 at the first violation, which ends it."""
        for seed in seeds:
            plan = self._plan_of(seed)
            try:
                outcome = play(plan)
            except Exception as error:  # a bug may show as any exception, and the seed is worth more than its kind
                print(f"VIOLATION at seed {seed}: {plan}\n{type(error).__name__}: {error}")
                print(f"again: paceline fuzz --seed {seed}{self._again}")
                return 1
            self.seeds += 1
            self.events += outcome.events
            self.simulated_s += outcome.seconds
            self.faults += outcome.faults
            self._progress()
        print(self.summary())
        return 0

    def _progress(self) -> None:
        """Prints the summary so far, every PROGRESS_EVERY_S."""
        now = time.monotonic()
        if now - self._told >= PROGRESS_EVERY_S:
            self._told = now
            print(self.summary(), file=sys.stderr)

    def summary(self) -> str:
        """Returns the counts so far in one line: seeds, seeds a second, events, simulated hours and faults."""
        rate = self.seeds / max(time.monotonic() - self._began, 1e-9)
        return (
            f"{self.seeds} seeds ({rate:.0f}/s), {self.events} events, {self.simulated_s / 3600:.1f} simulated hours, "
            f"{self.faults.total()} faults ({_listed(self.faults)}): no violation"
        )
