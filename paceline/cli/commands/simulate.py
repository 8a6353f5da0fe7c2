"""`paceline simulate` trains in virtual time, on machines that need not exist, with the same code of the schemes."""

from __future__ import annotations

import sys
from pathlib import Path

from paceline.cli.commands.race import chosen, race, tell_defaults, with_folders, with_race_end
from paceline.cli.support.options import Parser, add_settings, refuse_other_schemes
from paceline.cli.support.run_and_report import Runner, run_and_report
from paceline.cli.support.simulation_flags import SimulationFlags, add_flags
from paceline.cli.support.watch_page import add_watch, page
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.launch.local.train import new_folder, removing_unused
from paceline.observe.terminal.progress import make_display

EPILOG = """Two kinds of work. By default the model is really trained, on the real data, in one process and on
one copy of it for all workers; only the time is virtual, so accuracy against time is that of the
scheme and the model on such a cluster. With --timing-only nothing is trained and no memory is
needed for models; thousands of workers take seconds.

examples:
  paceline simulate --scheme esync --slowdown 1,1,2,8 --step-ms 20       as `train`, on a clock that does not wait
  paceline simulate --schemes all --slowdown 1,1,2,8 --step-ms 20 --target-accuracy 0.9
  paceline simulate --schemes bsp,ssp,esync --cluster two-generations --timing-only --seconds 600
  paceline simulate --scheme asp --cluster mine.toml --parameters 25000000 --timing-only --epochs 1
  paceline simulate --schemes all --from runs/20260101-120000-bsp        the cluster of that run under other schemes
  paceline simulate --schemes all --from runs/20260101-120000-launch     of your own script: times only

Leaves in --out what `train` and `race` leave; `driver` in summary.json is sim. The same options and
seed give the same run bit for bit, if --step-ms or a cluster says how long a step takes; else a
step is measured here, once. --threads is for torch on this machine; --device, --timeout, --dead-after,
--stuck-after, --restarts and --min-workers mean nothing here. --allreduce is timed by its schedule on the cluster's
links (see docs/carriers.md); gloo, nccl and mpi as a ring."""


def main(arguments: list[str]) -> int:
    """Makes one run, or a race, in virtual time; returns the exit code.

    The run of a script has times alone: its model cannot be made here. Raises ConfigError for flags that do not go
    together, before anything is written.
    """
    parser = Parser(prog="paceline simulate", description=__doc__, epilog=EPILOG)
    add_settings(parser)
    add_flags(parser)
    group = parser.add_argument_group("what to simulate")
    group.add_argument("--schemes", help="race these schemes: names separated by commas, or all")
    group.add_argument("--timing-only", action="store_true", help="train nothing; simulate times only")
    add_watch(parser)
    namespace = parser.parse_all(arguments)
    timing_only = namespace.timing_only or namespace.parameters is not None
    scene = SimulationFlags(namespace)
    if scene.cannot_train and not timing_only:
        print(
            f"{namespace.from_run} is a run of your own script: times are simulated, nothing is trained",
            file=sys.stderr,
        )
        timing_only = True
    scene.check(timing_only=timing_only)
    if timing_only:
        scene.end_as_asked()

    def start(config: Config) -> Runner:
        """Returns a run in virtual time; torch and the simulator are imported only now."""
        from paceline.runtime.simulated.simulated_run import VirtualRun

        return VirtualRun(scene.setting(config, timing_only=timing_only), make_display(sys.stderr))

    if namespace.schemes is None:
        config = scene.config()
        refuse_other_schemes(namespace, config)
        config = new_folder(config)
        with removing_unused(config.run.out), page(namespace, config.run.out):
            return run_and_report(start(config))
    if getattr(namespace, "run.scheme") is not None:
        raise ConfigError("--scheme and --schemes: give one of them")
    given = scene.values
    scene.values = given if timing_only else with_race_end(given)
    configs, out = with_folders([scene.config(scheme=name) for name in chosen(namespace.schemes)], "simulate")
    with removing_unused(out), page(namespace, out):
        if not timing_only:
            tell_defaults(given, configs[0])
        return race(configs, Path(out), start)
