"""`paceline fuzz` runs schemes under random faults in virtual time, until an invariant is violated."""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from paceline.cli.commands.race import chosen
from paceline.cli.support.options import Parser
from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.observe.formatting.number_format import counted
from paceline.runtime.fuzzing import checkpoint_faults, leader_loss, leader_script, seed_runs
from paceline.runtime.fuzzing.leader_loss import LeaderPlan
from paceline.runtime.fuzzing.seed_runs import PlayedSeed
from paceline.sim.fuzzing import script
from paceline.sim.fuzzing.fuzz import FuzzPlan, draw, play
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.shrink import Shrunk, shrink

EPILOG = """The schemes are the same code as in a live run. A seed draws one of them, with parameters such
that a short run comes by all that it does; a cluster of 2 to 6 workers and 0 to 3 servers; links
that lose, repeat, delay and reorder messages; and faults: crashes, restarts, pauses and one-way cuts
(some so long that a worker that still runs is declared dead), resets, torn writes, full disks, clocks
that jump, workers that leave. Invariants watch every event; when the faults are over everybody must
go on. Some seeds also slow a worker down for a while: throughput must come back. Some have a worker
whose results are NaN: it must be expelled. Some lose the leader with all processes, and resume the run
from its disk. Some bring the run up, while processes start late, die or join. Each seed also writes
checkpoints on a disk that fails or loses power. docs/fuzzing.md says what is injected and what is watched.

examples:
  paceline fuzz                                   for 60 seconds
  paceline fuzz --seeds 20000 --first 1000        seeds 1000 to 20999
  paceline fuzz --seeds 20000 --jobs 8            the same with 8 processes, and the same output
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
    parser.add_argument("--jobs", type=int, default=1, help="play seeds in so many processes (default: 1)")
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
    if options.jobs < 1:
        raise ConfigError(f"--jobs {options.jobs}: must be 1 or more")
    if options.transcript and options.seed is None and options.script is None:
        raise ConfigError("--transcript is for one run: give --seed or --script")
    if options.script is not None:
        table = script.table_of(_read(options.script))
        if leader_script.is_of_a_leader(table):
            return _show_leader(leader_script.plan_from(table), options)
        return _show(script.plan_from(table), options)
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
    code = campaign.run(seed_runs.in_order(drawn, options.first, last, deadline, options.jobs))
    if campaign.failed is not None:
        _shrink(*campaign.failed, options)
    return code


def _show(plan: FuzzPlan, options: Namespace) -> int:
    """Plays one plan and prints what it drew, what happened and the hash of its trace; returns the exit code."""
    print(f"seed {plan.seed}: {plan}")
    if options.transcript:
        print("\n".join(script.transcript(plan)))
    at: FuzzPlan | LeaderPlan | None = plan
    try:
        outcome = play(plan)
        if options.script is None:
            if at := leader_loss.draw(plan):
                print(f"{at}\n{_listed(leader_loss.play(at))}")
            at = None  # what follows is a plan of another kind
            print(on_disk := checkpoint_faults.draw(plan.seed))
            checkpoint_faults.play(on_disk)
    except Exception as error:
        _tell(error)
        if at and options.script is None:
            _shrink(at, f"{type(error).__name__}: {error}", options)
        return 1
    print(f"{outcome.events} events, {outcome.seconds:.1f} simulated seconds; {_listed(outcome.faults)}")
    print(f"trace {outcome.digest}; no violation")
    return 0


def _show_leader(plan: LeaderPlan, options: Namespace) -> int:
    """Plays the script of runs whose leader is lost, and prints what happened; returns the exit code."""
    print(f"seed {plan.seed}: {plan}")
    if options.transcript:
        print("\n".join(leader_script.transcript(plan)))
    try:
        print(_listed(leader_loss.play(plan)))
    except Exception as error:
        _tell(error)
        return 1
    print("no violation")
    return 0


def _tell(error: Exception) -> None:
    """Prints how a run failed; where no check has found it, with its stack on stderr, which shows where the bug is."""
    if not isinstance(error, script.FOUND_BY_A_CHECK):
        traceback.print_exception(error)
    print(script.violation(error))


def _read(name: str) -> str:
    """Returns the text of a script. Raises ConfigError."""
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--script {name}: {getattr(error, 'strerror', None) or 'is no text'}") from None


def _shrink(plan: FuzzPlan | LeaderPlan, failure: str, options: Namespace) -> None:
    """Prints the smallest script found that fails as `plan` does, and writes it to --save. Raises ConfigError."""
    if not options.shrink_seconds:
        return
    until: float = time.monotonic() + options.shrink_seconds
    print(f"shrinking, for {options.shrink_seconds:g} s at most ...", file=sys.stderr)

    def progress(smaller: FuzzPlan | LeaderPlan, tried: int) -> None:
        runs = smaller.plans if isinstance(smaller, LeaderPlan) else (smaller,)
        parties = f"{counted(runs[0].cluster.workers, 'worker')}, {counted(runs[0].cluster.servers, 'server')}"
        faults = sum(len(run.cluster.faults) for run in runs)
        print(f"  {tried} tried: {parties}, {counted(faults, 'fault')}", file=sys.stderr)

    def time_is_up() -> bool:
        return time.monotonic() > until

    found: Shrunk[FuzzPlan] | Shrunk[LeaderPlan]
    if isinstance(plan, LeaderPlan):
        found = leader_script.shrunk(plan, failure, time_is_up=time_is_up, progress=progress)
    else:
        found = shrink(plan, failure, time_is_up=time_is_up, progress=progress)
    ended = "nothing more can be dropped" if found.whole else "the time was up"
    about = f"{found.failure}\nshrunk from seed {plan.seed} in {found.tried} runs; {ended}"
    text = _script_of(found.plan, about)
    print(f"fault script ({ended} after {found.tried} runs):\n\n{text}")
    if options.save:
        try:
            Path(options.save).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--save {options.save}: {error.strerror}") from None
        print(f"again: paceline fuzz --script {shlex.quote(options.save)} --transcript")


def _script_of(plan: FuzzPlan | LeaderPlan, about: str) -> str:
    """Returns the script of a plan of either kind."""
    if isinstance(plan, LeaderPlan):
        return leader_script.script_of(plan, about=about)
    return script.script_of(plan, about=about)


def _listed(faults: Counter[str]) -> str:
    """Returns how often each kind of fault was injected, the most frequent first."""
    return ", ".join(f"{count} {kind}" for kind, count in faults.most_common()) or "no faults"


class Campaign:
    """Counts what came of many seeds. `failed`: the plan that failed and how, if it can shrink."""

    def __init__(self, plan_of: Callable[[int], FuzzPlan], again: str) -> None:
        self._plan_of, self._again = plan_of, again
        self._began = self._told = time.monotonic()
        self.seeds = self.events = 0
        self.simulated_s = 0.0
        self.faults: Counter[str] = Counter()
        self.failed: tuple[FuzzPlan | LeaderPlan, str] | None = None

    def run(self, seeds: Iterable[PlayedSeed]) -> int:
        """Takes what came of seeds, in their order, and returns the exit code: 1 at a violation, which ends it."""
        for played in seeds:
            if played.failure:
                failed = played.failed
                print(f"VIOLATION at seed {played.seed}: {failed or self._plan_of(played.seed)}\n{played.failure}")
                print(f"again: paceline fuzz --seed {played.seed}{self._again}")
                if isinstance(failed, FuzzPlan | LeaderPlan):
                    self.failed = failed, played.failure
                return 1
            self.seeds += 1
            self.events += played.events
            self.simulated_s += played.simulated_s
            self.faults += played.faults
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
