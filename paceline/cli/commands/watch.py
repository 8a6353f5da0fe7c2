"""`paceline watch` shows an active, finished or simulated run on a page in the browser."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.support import scheme_catalogue
from paceline.cli.support.options import Parser
from paceline.cli.support.watch_page import NO_PAGE, OWNED, add_alert_hook, add_control, hook_words
from paceline.config import Config, build, load, settings, to_dict
from paceline.config.parsing import written
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.scheme import lookup
from paceline.observe.runs.collapse import way_out
from paceline.observe.trace.trace_file import TRACE
from paceline.runtime.run_folder.status_file import STATUS
from paceline.runtime.spec.rate_scale import factor_of

if TYPE_CHECKING:
    from paceline.observe.watch.panels.run_progress import RunFacts

EPILOG = """The page shows who computes, waits and communicates, who holds the others up and what that costs, and what
other schemes would give. It reads RUN/trace.jsonl and, without --control, changes nothing. It listens on 127.0.0.1; the
address that is printed has a token in it, and only who has it may look. From another machine:

  ssh -L 8123:127.0.0.1:8123 HOST         and there: paceline watch RUN --port 8123

examples:
  paceline watch runs/20260101-120000-bsp
  paceline train --scheme bsp --slowdown 1,1,1,4 --step-ms 20 --watch       the page comes and goes with the run
  paceline race --schemes bsp,asp,esync --watch         one page; it goes over to each run as it begins
  paceline watch runs --alert-hook 'notify-send Paceline'      says when a worker is slow or the loss is no number
  paceline watch runs/a --control       expels, drains and adds workers, and more; each is asked twice
  paceline watch runs/a --port 8123 --metrics-open      and Prometheus scrapes http://127.0.0.1:8123/metrics
"""
NICENESS = 10
"""Added to the nice value of the page's process: training comes first."""


def main(arguments: list[str]) -> int:
    """Serves the page until Ctrl-C, or until the run that started it has ended; returns 0.

    Raises ConfigError for a port that is none, and for a folder without a run. A run that starts its own page passes
    OWNED: then the trace may not be there yet, and the page waits for it.
    """
    parser = Parser(prog="paceline watch", usage="paceline watch RUN [options]", description=__doc__, epilog=EPILOG)
    parser.add_argument(
        "run", metavar="RUN", help="folder of a run (--out, or runs/...); of a folder of several: the newest"
    )
    parser.add_argument("--port", default="0", help="port to listen on (default: any free one)")
    parser.add_argument("--metrics-open", action="store_true", help="/metrics, for Prometheus, needs no token")
    add_control(parser)
    add_alert_hook(parser)
    parser.add_argument(NO_PAGE, action="store_true", help="serve no page: call the hook of --alert-hook alone")
    parser.add_argument(OWNED, action="store_true", help="end with whoever started this")
    namespace = parser.parse_all(arguments)
    run, owned = Path(namespace.run), namespace.until_stdin_closes
    if not namespace.port.isdigit() or int(namespace.port) > 65535:
        raise ConfigError(f"--port {namespace.port}: must be a number from 0 to 65535")
    if not owned:
        check(run)
    hook = hook_words(namespace.alert_hook)
    if namespace.no_page:
        return _alerts_alone(run, hook, owned=owned)
    from paceline.cli.support.scheme_forecast import forecasts_of
    from paceline.observe.watch.reader import newest
    from paceline.observe.watch.serving.server import serve

    # Before the server's threads begin: they inherit it.
    os.nice(NICENESS)  # training comes first
    with suppress(KeyboardInterrupt):  # the way to end it
        serve(
            run,
            lambda: about(newest(run)),
            port=int(namespace.port),
            forecaster=lambda measured: forecasts_of(measured, about(newest(run))),
            owner=sys.stdin.buffer if owned else None,
            ready=lambda address: print(f"watch the run at {address}", flush=True),
            metrics_open=namespace.metrics_open,
            facts=CachedFacts(lambda: newest(run)),
            hook=hook,
            give=give if namespace.control else None,
        )
    return 0


def _alerts_alone(run: Path, hook: Sequence[str], *, owned: bool) -> int:
    """Calls the hook for the alerts of a run, without a page, until Ctrl-C or the owner's end; returns 0."""
    from paceline.observe.watch.serving.alerts_alone import watch_alerts

    if not hook:
        raise ConfigError(f"{NO_PAGE} goes with --alert-hook CMD: without a page somebody else must hear of alerts")
    os.nice(NICENESS)
    print(f"alerts of the run go to {hook[0]}", flush=True)
    with suppress(KeyboardInterrupt):
        watch_alerts(run, hook, owner=sys.stdin.buffer if owned else None)
    return 0


def give(run: Path, kind: str, rank: int, factor: float) -> None:
    """Leaves an order for the process that leads the run. Raises ConfigError where nobody does."""
    from paceline.core.coordination.operator_orders import OperatorOrder
    from paceline.runtime.run_folder.order_folder import OrderFolder
    from paceline.runtime.run_folder.status_file import read_status

    status = read_status(run)
    if status.ended:
        raise ConfigError(f"{run}: the run is over ({status.reason or status.state})")
    if not status.here:
        raise ConfigError(f"{run}: the process that leads the run (pid {status.pid} on {status.host}) is not here")
    OrderFolder(run).post(OperatorOrder(kind=kind, rank=rank, factor=factor))


def check(run: Path) -> None:
    """Raises ConfigError where there is no run to be watched."""
    if (run / TRACE).is_file() or any(run.glob(f"*/{TRACE}")):
        return
    raise ConfigError(f"{run}: no {TRACE}; name the folder of a run")


def about(run: Path) -> dict[str, Any]:
    """Returns what the run's config.toml says of it, for the page's heading.

    While the file is not there, or is one of another version, most of it is empty; the page asks again.
    """
    from paceline.observe.watch.algorithm_text import box

    told: dict[str, Any] = {"run": str(run), "scheme": "", "summary": "", "paper": "", "box": [], "servers": 1}
    told["parameters"], told["way_out"] = {}, ""
    try:
        config = build(load(str(run / "config.toml")))
    except PacelineError:
        return told
    name = config.run.scheme
    lines = [[{"text": p.text, "at": list(p.at)} for p in line] for line in box(scheme_catalogue.description(name))]
    told |= {"scheme": name, "summary": lookup(name).summary, "paper": lookup(name).paper.short(), "box": lines}
    told["parameters"] = {scheme: dict(of) for scheme, of in config.parameters.items()}
    told["way_out"] = _way_out(config)
    told |= {"servers": config.cluster.servers, "workers": config.cluster.workers}
    told |= {"target": config.stop.target_accuracy or None, "target_loss": config.stop.target_loss or None}
    told["settings"] = settings_of(config)
    if (run / STATUS).is_file():  # a simulation has none, and ends with its command
        told["stop"] = f"paceline kill {shlex.quote(str(run))}"
    return told | {"model": config.task[0], "data": config.task[1]}


def settings_of(config: Config) -> list[list[str]]:
    """Returns flag and value of each setting that is not the default, and of the scheme's parameters."""
    values = to_dict(config)
    found = []
    for setting in settings():
        value = values.get(setting.section, {}).get(setting.key, setting.default)
        value = tuple(value) if isinstance(value, list) else value
        own = setting.section == config.run.scheme
        if setting.flag != "out" and (own or value != setting.default):
            found.append([f"--{setting.flag}", written(value)])
    return found


def facts_of(run: Path) -> RunFacts:
    """Returns where the run ends and what its learning rate is, by config.toml and status.json; empty without them."""
    from paceline.engine.optim.lr_schedule import factor
    from paceline.observe.watch.panels.run_progress import RunFacts
    from paceline.runtime.run_folder.status_file import read_status

    try:
        config = build(load(str(run / "config.toml")))
    except PacelineError:
        return RunFacts()
    try:
        epoch = read_status(run).train_samples
    except PacelineError:  # a simulation has none
        epoch = 0
    stop, total = config.stop, config.stop.samples_of(epoch) if epoch else config.stop.samples
    schedule = config.schedule.recipe(epoch, total)

    def rate(samples: int) -> float | None:
        """Returns the learning rate after so many samples; None where a script has its own, or its clock is unknown."""
        if config.is_script or (schedule.name != "constant" and not epoch):
            return None
        return config.optimizer.lr * (factor(schedule, samples) if epoch else 1.0)

    return RunFacts(samples=total, seconds=stop.seconds, steps=stop.steps, epoch_samples=epoch, learning_rate=rate)


class CachedFacts:
    """Reads the facts of a run again only where one of its files has changed."""

    def __init__(self, run: Callable[[], Path]) -> None:
        self._run = run
        self._known: tuple[Any, RunFacts] | None = None

    def __call__(self) -> RunFacts:
        """Returns the facts of now."""
        run = self._run()
        seen = (run, _changed(run / "config.toml"))  # status.json changes every second, and what is needed of it never
        if self._known is None or self._known[0] != seen or not self._known[1].epoch_samples:
            self._known = (seen, facts_of(run))
        return self._known[1]


def _changed(path: Path) -> int:
    """Returns when a file was changed last, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _way_out(config: Config) -> str:
    """Returns what may help where the model collapses."""
    scheme, workers = config.scheme(), config.cluster.workers
    factor = factor_of(scheme, workers, config.optimizer.lr_scale)
    return way_out(scheme.name, scheme.parameters(), config.optimizer.lr, workers, factor)
