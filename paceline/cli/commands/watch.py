"""`paceline watch` shows an active, finished or simulated run on a page in the browser."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from paceline.cli.support import scheme_catalogue
from paceline.cli.support.options import Parser
from paceline.cli.support.watch_page import OWNED
from paceline.config import Config, build, load
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.scheme import lookup
from paceline.observe.runs.collapse import way_out
from paceline.observe.trace.trace_file import TRACE

EPILOG = """The page shows who computes, waits and communicates, who holds the others up and what that costs, and what
other schemes would give. It reads RUN/trace.jsonl and changes nothing. It listens on 127.0.0.1; the
address that is printed has a token in it, and only who has it may look. From another machine:

  ssh -L 8123:127.0.0.1:8123 HOST         and there: paceline watch RUN --port 8123

examples:
  paceline watch runs/20260101-120000-bsp
  paceline train --scheme bsp --slowdown 1,1,1,4 --step-ms 20 --watch       the page comes and goes with the run
  paceline race --schemes bsp,asp,esync --watch         one page; it goes over to each run as it begins
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
    parser.add_argument(OWNED, action="store_true", help="end with whoever started this")
    namespace = parser.parse_all(arguments)
    run, owned = Path(namespace.run), namespace.until_stdin_closes
    if not namespace.port.isdigit() or int(namespace.port) > 65535:
        raise ConfigError(f"--port {namespace.port}: must be a number from 0 to 65535")
    if not owned:
        check(run)
    from paceline.cli.support.scheme_forecast import forecasts_of
    from paceline.observe.watch.reader import newest
    from paceline.observe.watch.server import serve

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
        )
    return 0


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
    told |= {"servers": config.cluster.servers, "target": config.stop.target_accuracy or None}
    return told | {"model": config.task[0], "data": config.task[1]}


def _way_out(config: Config) -> str:
    """Returns what may help where the model collapses."""
    return way_out(config.run.scheme, config.scheme().parameters(), config.optimizer.lr, config.cluster.workers)
