"""`paceline fuzz` runs schemes under random faults in virtual time, until an invariant is violated."""

from __future__ import annotations

import shlex
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from paceline.cli.commands.race import chosen
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.scheme import make
from paceline.observe.formatting.number_format import counted
from paceline.runtime.simulated import checkpoint_faults, leader_loss
from paceline.runtime.simulated.checkpoint_faults import CheckpointPlan
from paceline.runtime.simulated.leader_loss import LeaderPlan
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.fuzzing.fuzz import FuzzPlan, draw, play
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.script import plan_of, script_of, transcript
from paceline.sim.fuzzing.shrink import shrink

EPILOG = """The schemes are the same code as in a live run. A seed draws one of them, with parameters such
that a short run comes by all that it does; a cluster of 2 to 6 workers and 0 to 3 servers; links
that lose, repeat, delay and reorder messages; and faults: crashes, restarts, pauses and one-way cuts
(some so long that a worker that still runs is declared dead), resets, torn writes, full disks, clocks
that jump, workers that leave. Invariants watch every event; when the faults are over everybody must
go on. Some seeds also slow a worker down for a while: throughput must come back. Some lose the leader
with all processes, and resume the run from its disk. Some bring the run up, while processes start
late, die or join. Each seed also writes checkpoints on a disk that fails or loses power.
docs/fuzzing.md says what is injected and what is watched.

examples:
  paceline fuzz                                   for 60 seconds
  paceline fuzz --seeds 20000 --first 1000        seeds 1000 to 20999
  paceline fuzz --schemes hybrid --seconds 10     phases of drawn schemes
  paceline fuzz --schemes bsp,ssp --defaults      these schemes, with their default parameters
  paceline fuzz --seed 4711                       one seed, with what it drew and the hash of its trace
  paceline fuzz --seed 4711 --transcript          what happens in it: faults, losses, updates, in order
  paceline fuzz --save bug.toml                   the fault script of the first failure goes to that file
  paceline fuzz --script bug.toml --transcript    that script again; edit it to see what matters

Ends at the first violation, with the seed and the command that plays it again. The same command
gives the same hash on every machine. Then the failure shrinks: faults, workers, servers and hazards
are dropped as long as it still fails in the same way, for --shrink-seconds at most (0: not at all).
What is left is printed as a fault script."""

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
    parser.add_argument("--script", metavar="FILE", help="play this fault script instead of seeds")
    parser.add_argument("--save", metavar="FILE", help="write the shrunk fault script of a failure to this file")
    parser.add_argument("--shrink-seconds", type=float, default=30.0, help="time to shrink a failure (default: 30)")
    parser.add_argument("--transcript", action="store_true", help="with --seed or --script: print what happens")
    parser.add_argument("--schemes", default="all", help="names separated by commas, or all (default: all)")
    parser.add_argument(
        "--defaults", action="store_true", help="use the schemes' default parameters instead of random ones"
    )
    options = parser.parse_all(arguments)
    if sum(getattr(options, name) is not None for name in ("seconds", "seeds", "seed", "script")) > 1:
        raise ConfigError("--seconds, --seeds, --seed and --script: give one of them")
    for name in ("seconds", "seeds", "first", "seed", "shrink_seconds"):
        if (getattr(options, name) or 0) < 0:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be 0 or more")
    if options.transcript and options.seed is None and options.script is None:
        raise ConfigError("--transcript is for one run: give --seed or --script")
    if options.script is not None:
        return _show(plan_of(_read(options.script)), options)
    names = chosen(options.schemes)
    again = "" if options.schemes == "all" else f" --schemes {options.schemes}"
    if options.defaults:
        defaults = [make(name, {}) for name in names]
        return _run(options, lambda seed: draw(seed, defaults), f"{again} --defaults")
    return _run(options, lambda seed: draw(seed, schemes_of(seed, names)), again)


def _run(options: Namespace, drawn: Callable[[int], FuzzPlan], again: str) -> int:
    """Shows one seed, or plays many; `again` is what the printed command must repeat besides the seed.

    `drawn` makes the plan of a seed. It must depend on nothing else, or the seed would not play the same run again.
    """
    if options.seed is not None:
        return _show(drawn(options.seed), options)
    last = None if options.seeds is None else options.first + options.seeds
    deadline = None if last is not None else time.monotonic() + (60.0 if options.seconds is None else options.seconds)
    campaign = Campaign(drawn, again)
    code = campaign.run(_seeds(options.first, last, deadline))
    if campaign.failed is not None:
        _shrink(*campaign.failed, options)
    return code


def _show(plan: FuzzPlan, options: Namespace) -> int:
    """Plays one plan and prints what it drew, what happened and the hash of its trace; returns the exit code."""
    print(f"seed {plan.seed}: {plan}")
    if options.transcript:
        print("\n".join(transcript(plan)))
    shrinks = options.script is None
    try:
        outcome = play(plan)
        if options.script is None:
            shrinks = False  # what follows is a plan of another kind
            if leader := leader_loss.draw(plan):
                print(f"{leader}\n{_listed(leader_loss.play(leader))}")
            print(on_disk := checkpoint_faults.draw(plan.seed))
            checkpoint_faults.play(on_disk)
    except (InvariantBroken, PacelineError) as error:
        print(f"VIOLATION: {error}")
        if shrinks:
            _shrink(plan, f"{type(error).__name__}: {error}", options)
        return 1
    print(f"{outcome.events} events, {outcome.seconds:.1f} simulated seconds; {_listed(outcome.faults)}")
    print(f"trace {outcome.digest}; no violation")
    return 0


def _read(name: str) -> str:
    """Returns the text of a script. Raises ConfigError."""
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--script {name}: {getattr(error, 'strerror', None) or 'is no text'}") from None


def _shrink(plan: FuzzPlan, failure: str, options: Namespace) -> None:
    """Prints the smallest script found that fails as `plan` does, and writes it to --save. Raises ConfigError."""
    if not options.shrink_seconds:
        return
    until = time.monotonic() + options.shrink_seconds
    print(f"shrinking, for {options.shrink_seconds:g} s at most ...", file=sys.stderr)

    def progress(smaller: FuzzPlan, tried: int) -> None:
        cluster = smaller.cluster
        parties = f"{counted(cluster.workers, 'worker')}, {counted(cluster.servers, 'server')}"
        print(f"  {tried} tried: {parties}, {counted(len(cluster.faults), 'fault')}", file=sys.stderr)

    shrunk = shrink(plan, failure, time_is_up=lambda: time.monotonic() > until, progress=progress)
    ended = "nothing more can be dropped" if shrunk.whole else "the time was up"
    about = f"{shrunk.failure}\nshrunk from seed {plan.seed} in {shrunk.tried} runs; {ended}"
    script = script_of(shrunk.plan, about=about)
    print(f"fault script ({ended} after {shrunk.tried} runs):\n\n{script}")
    if options.save:
        try:
            Path(options.save).write_text(script, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--save {options.save}: {error.strerror}") from None
        print(f"again: paceline fuzz --script {shlex.quote(options.save)} --transcript")


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
        self.failed: tuple[FuzzPlan, str] | None = None

    def run(self, seeds: Iterable[int]) -> int:
        """Plays `seeds` in order and returns the exit code: 1 at the first violation, which ends it."""
        for seed in seeds:
            plan = self._plan_of(seed)
            other: CheckpointPlan | LeaderPlan | None = None
            lost: Counter[str] = Counter()
            try:
                outcome = play(plan)
                if other := leader_loss.draw(plan):
                    lost = leader_loss.play(other)
                other = on_disk = checkpoint_faults.draw(seed)
                checkpoint_faults.play(on_disk)
            except Exception as error:  # a bug may show as any exception, and the seed is worth more than its kind
                failure = f"{type(error).__name__}: {error}"
                print(f"VIOLATION at seed {seed}: {other or plan}\n{failure}")
                print(f"again: paceline fuzz --seed {seed}{self._again}")
                self.failed = None if other else (plan, failure)  # only the runs of `play` shrink
                return 1
            self.seeds += 1
            self.events += outcome.events
            self.simulated_s += outcome.seconds
            self.faults += outcome.faults + lost
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
