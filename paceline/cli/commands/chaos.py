"""`paceline chaos` trains for real under real faults, and says how the run survived them."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline import config as configuration
from paceline.chaos.faulty_launcher import FaultyLauncher
from paceline.chaos.plan import KINDS, PlannedFault, draw, kinds_of
from paceline.chaos.proxy import ProxySet, proxied
from paceline.chaos.runner import FaultRunner
from paceline.chaos.verdict import ChaosVerdict, pauses
from paceline.cli.support.options import Parser, add_settings, values_of
from paceline.cli.support.run_and_report import RunInterrupted, report, run
from paceline.config import Config
from paceline.core.coordination import party
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import make_supervisor, new_folder
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.progress import make_display
from paceline.observe.trace.trace_file import TRACE, read_trace

EPILOG = """The plan is drawn from --seed and printed first. While the run goes on there is a line for each
fault once it is over: after how long the party was declared failed, and after how long it was back. At the end
a table and a verdict. Exits with 1 when the run failed, stood still for longer than --hang, or, with
--baseline, lost more than --points of accuracy.

  kill         SIGKILL to a worker
  stop         SIGSTOP to a worker, for less or more than --dead-after, then SIGCONT
  slow         a worker gets a third or a tenth of its time, for 3 s
  partition    nothing passes between a worker or server and everybody else, for less or more than --dead-after
  server       SIGKILL to a server
  evaluator    SIGKILL to the evaluator

Any option of `paceline train` may follow. Other than there, the defaults are --scheme bsp, --servers 2,
--allreduce servers, --snapshot-every 2, --dead-after 2, --step-ms 10, --restarts without end, and an
end once all faults have settled. Nobody is struck twice at a time, nor in the second after it came
back. With partition among the faults the parties talk over TCP, through relays in this process;
whoever takes the place of one that was cut off and given up is reached.

examples:
  paceline chaos --dry-run                                       what would happen
  paceline chaos --faults kill,stop --count 10 --scheme ssp
  paceline chaos --count 200 --ack replica --baseline            and the same training without faults
"""

DEFAULTS: dict[str, dict[str, Any]] = {
    "run": {"scheme": "bsp"},
    "cluster": {
        "servers": 2,
        "allreduce": "servers",
        "snapshot_every": 2.0,
        "dead_after": 2.0,
        "restarts": 1_000_000,
        "step_ms": 10.0,
    },
}
LATE_SECONDS = 30.0
"""Seconds a run goes on after its last fault was due: for faults that come late, and for returns."""

SETTLED = "all faults have settled"
"""The reason that the run's summary gives for its end."""


def main(arguments: list[str]) -> int:
    """Draws the plan, prints it and makes the run; returns the exit code.

    0    the run outlived all faults, and lost no more accuracy and time than allowed; also after `--dry-run`
    1    it did not: the verdict says why
    130  Ctrl-C
    """
    parser = Parser(prog="paceline chaos", description=__doc__, epilog=EPILOG)
    own = parser.add_argument_group("faults")
    own.add_argument("--faults", default=",".join(KINDS), help=f"kinds with commas (default: {','.join(KINDS)})")
    own.add_argument("--every", type=float, default=2.0, help="seconds between two faults (default: 2)")
    own.add_argument("--count", type=int, default=20, help="number of faults (default: 20)")
    own.add_argument("--dry-run", action="store_true", help="print the plan and do nothing")
    own.add_argument("--baseline", action="store_true", help="then train as many samples without faults")
    own.add_argument("--hang", type=float, default=10.0, help="maximum seconds without progress (default: 10)")
    own.add_argument(
        "--points", type=float, default=2.0, help="percentage points of accuracy that faults may cost (default: 2)"
    )
    add_settings(parser)
    options = parser.parse_all(arguments)
    config, plan, sooner = planned(options)
    print("\n".join(map(str, plan)), flush=True)
    if options.dry_run:
        return 0
    config = new_folder(config)
    with LocalHost() as host:
        return Chaos(config, plan, host, options, sooner=sooner).run()


def planned(options: argparse.Namespace) -> tuple[Config, list[PlannedFault], bool]:
    """Returns the configuration of the run, its faults, and whether it ends once they have settled.

    The last is True where neither epochs nor seconds nor steps were given. The plan depends on the seed, the kinds and
    the cluster alone, so the same command strikes the same parties in the same order. Raises ConfigError where the
    cluster could not outlive a fault at all, such as one with a single worker.
    """
    for name, least in (("every", 0.1), ("count", 1), ("hang", 0.1), ("points", 0.0)):
        if not least <= getattr(options, name) < math.inf:
            raise ConfigError(f"--{name} {getattr(options, name)}: must be finite, and {least} or more")
    kinds = kinds_of(options.faults)
    values = values_of(options)
    length = {"epochs": 0.0, "seconds": options.count * options.every + LATE_SECONDS}
    sooner = not {"epochs", "seconds", "steps"} & set(values.get("stop", {}))
    # What the user gave wins over the defaults of this command, key by key.
    for section, defaults in {**DEFAULTS, "stop": length if sooner else {}}.items():
        values[section] = {**defaults, **values.get(section, {})}
    config = configuration.build(values)
    cluster = config.cluster
    if not cluster.servers or cluster.allreduce not in ("auto", "servers"):
        raise ConfigError("chaos needs servers that carry the means, as without them no run outlives a worker")
    if cluster.workers < 2:
        raise ConfigError("--workers 1: chaos needs two workers or more, as no run outlives its last")
    if "partition" in kinds and cluster.transport == "shm":
        raise ConfigError("--transport shm: shared memory cannot be cut; leave partition out of --faults")
    plan = draw(
        config.run.seed,
        kinds,
        count=options.count,
        every_s=options.every,
        workers=cluster.workers,
        servers=cluster.servers,
        dead_after_s=cluster.dead_after,
    )
    return config, plan, sooner


class Chaos:
    """Makes the run with faults, then the quiet one if `--baseline` asks for it, and prints the verdict."""

    def __init__(
        self, config: Config, plan: list[PlannedFault], host: LocalHost, options: argparse.Namespace, *, sooner: bool
    ) -> None:
        self._config, self._plan, self._host, self._options = config, plan, host, options
        self._sooner = sooner

    def run(self) -> int:
        """Returns the exit code: 1 if the run stood still for too long or lost too much accuracy, else 0."""
        try:
            summary, runner, left = self._with_faults()
            quiet = self._quiet(summary) if self._options.baseline else None
        except RunInterrupted as end:
            print("paceline: interrupted", file=sys.stderr)
            return end.exit_code
        verdict = ChaosVerdict(
            outcomes=runner.outcomes,
            planned=len(self._plan),
            unasked=len(runner.unasked),
            pauses=pauses(read_trace(Path(self._config.run.out) / TRACE)),
            accuracy=summary.test_accuracy,
            quiet=quiet.test_accuracy if quiet else None,
            hang_s=self._options.hang,
            points=self._options.points,
        )
        print(f"{report(summary, left)}\n\n{verdict.table()}\n{verdict}")
        return 1 if verdict.broken() else 0

    def _with_faults(self) -> tuple[Summary, FaultRunner, Mapping[str, Sequence[str]]]:
        """Returns the summary of the run, the runner with what came of each fault, and the files left.

        Raises PacelineError that names the last fault, if the run failed.
        """
        display = make_display(sys.stderr)
        cluster = self._config.cluster
        parties = [*map(party.worker, range(cluster.workers)), *map(party.server, range(cluster.servers))]
        parties.append(party.EVALUATOR)
        with _relays(self._plan) as relays:
            launcher = FaultyLauncher(self._host.launcher(), relays)
            runner = FaultRunner(self._plan, parties, launcher, lambda line: display.begin((line,)))
            supervisor = make_supervisor(
                self._config,
                launcher,
                display,
                hooks=(runner.heard,),
                around=lambda transport: proxied(transport, relays) if relays else transport,
            )
            # The runner has a thread of its own: it strikes by the run's clock, and hears of losses and returns through
            # the hook.
            runner.start(supervisor.elapsed_s, lambda: supervisor.stop(SETTLED) if self._sooner else None)
            try:
                return run(supervisor), runner, supervisor.left
            except PacelineError as error:
                struck = runner.outcomes[-1] if runner.outcomes else "any"
                raise PacelineError(f"the run did not outlive {struck}\n{error}") from None
            finally:
                runner.end()

    def _quiet(self, summary: Summary) -> Summary:
        """Trains as many samples as the run with faults did, without any; returns that summary.

        Samples are compared, not seconds: faults cost time in any case, and the question is what they cost in accuracy.
        """
        samples = self._host.launcher().prepare(self._config)
        stop = dataclasses.replace(self._config.stop, epochs=summary.samples / samples, seconds=0.0, steps=0)
        out = str(Path(self._config.run.out) / "quiet")
        config = dataclasses.replace(self._config, stop=stop, run=dataclasses.replace(self._config.run, out=out))
        print("the same without faults", file=sys.stderr)
        return run(make_supervisor(new_folder(config), self._host.launcher(), make_display(sys.stderr)))


@contextlib.contextmanager
def _relays(plan: list[PlannedFault]) -> Iterator[ProxySet | None]:
    """Gives the relays through which parties talk, where the plan cuts somebody off; else None.

    A connection between two processes of one machine cannot be cut from outside, so it is led through this process.
    """
    if all(fault.kind != "partition" for fault in plan):
        yield None
        return
    relays = ProxySet()
    try:
        yield relays
    finally:
        relays.close()
