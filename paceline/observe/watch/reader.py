"""Follows a run on a thread of its own and keeps what the page asks for.

trace reader   reads new records every LOOK_S seconds, adds them to the state, starts forecasts
forecaster     asks what other schemes would give, when speeds are known and when they change
requests       `picture` and `metrics`, under the lock, from the server's threads
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.core.errors import PacelineError
from paceline.observe.export.prometheus import Metrics
from paceline.observe.trace.trace_file import TRACE
from paceline.observe.trace.trace_tail import Follower
from paceline.observe.watch.headline import sentence, times_text
from paceline.observe.watch.page_data import PageQuery, causes, last_causes, picture, usual_rate
from paceline.observe.watch.panels.alerts import OF_VERDICT, AlertWatch, Hook
from paceline.observe.watch.panels.run_progress import RunFacts, progress
from paceline.observe.watch.state import PageState
from paceline.observe.watch.waits.verdict import HOLD_S

LOOK_S = 0.25
"""Seconds between two looks at a trace that does not grow."""
BATCH = 2000
"""Records that are added under the lock at once, so that a request waits for a moment only."""
FORECAST_AFTER_STEPS = 5
"""Steps of each worker after which its speed is known well enough."""
FORECAST_EVERY_S = 20.0
"""Seconds of the run between two forecasts, at least."""
ALERTS_EVERY_S, CAUGHT_UP = 1.0, 0.99
"""Seconds of the run between two looks for alerts, and the part of the trace that must have been read."""
MISSED = 1.25
"""A forecast for the run's own scheme that is off by more than this factor is not believed for others."""
CALM_MAX = 1.5
"""So many times as much no scheme can give where the workers hardly wait."""
WORTH_TRYING = 1.2
"""The headline names a scheme that would give so many times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Describes one worker by its latest steps: seconds a step, samples a step, seconds an exchange costs beside.

    spread_s: standard deviation of step_s. host: where it runs; "" where nobody knows.
    """

    rank: int
    device: str
    step_s: float
    samples: float
    exchange_s: float
    spread_s: float = 0.0
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Says what a scheme would give on the same machines, in samples/s; `kind` says what its updates are.

    is_own: the scheme is the run's.
    """

    scheme: str
    rate: float
    kind: str
    is_own: bool = False


Forecaster = Callable[[Sequence[Measured]], Sequence[Forecast]]


About = tuple[str, tuple[int, ...], int]
"""What a forecast is made for: a kind of verdict, ranks, and how many workers take part."""


@dataclass(slots=True)
class _Announced:
    """Holds the forecast that is shown: for which workers it was made, and when by the trace's clock."""

    about: About = ("", (), 0)
    at: float = -FORECAST_EVERY_S
    rows: list[dict[str, Any]] = field(default_factory=list)
    withheld: str = ""


def newest(folder: Path) -> Path:
    """Returns the folder itself where it is that of a run, or else the run in it that has begun last."""
    if (folder / TRACE).is_file():
        return folder
    return max((trace.parent for trace in folder.glob(f"*/{TRACE}")), key=_begun, default=folder)


def _begun(run: Path) -> tuple[float, str]:
    """Returns when the run began, in seconds; 0 while nobody knows.

    The configuration's file tells, not the trace: of two runs that go on at once, each trace is the newer one in
    turn.
    """
    try:
        return (run / "config.toml").stat().st_mtime, run.name
    except OSError:
        return 0.0, run.name


class Reader:
    """Reads the run in folder `run`, or the newest of those in it.

    `forecaster` returns what other schemes would give; it is called in the background.
    """

    def __init__(
        self,
        run: Path,
        forecaster: Forecaster | None = None,
        facts: Callable[[], RunFacts] = RunFacts,
        alerts: Hook | None = None,
        *,
        from_start: bool = False,
    ) -> None:
        """`facts` returns what the run's files say of it now; `alerts` hears of alerts. `from_start`: each run is seen
        from its beginning, so its end is news even if nothing was read before it."""
        self._facts, self._hook = facts, alerts
        self._alerts, self._looked_at = AlertWatch(alerts), 0.0
        self._was_live = self._from_start = from_start
        self._folder, self.run = run, newest(run)
        self._follower = Follower(self.run / TRACE)
        self._state, self._forecaster = PageState(workers=0), forecaster
        self._metrics = Metrics(run=str(self.run))
        self._lock, self._over = threading.Lock(), threading.Event()
        self._told_facts, self.hook_failed = RunFacts(), ""
        self._told, self.problem = _Announced(), ""
        self._asked: threading.Thread | None = None
        self._pictures: dict[PageQuery, tuple[int, dict[str, Any]]] = {}

    def begin(self) -> None:
        """Starts reading."""
        threading.Thread(target=self._follow, name="trace reader", daemon=True).start()

    def close(self) -> None:
        """Ends the reading."""
        self._over.set()

    def picture(self, query: PageQuery) -> dict[str, Any]:
        """Returns the document for a query. It is made once for each number of records, whoever asks."""
        with self._lock:
            known = self._pictures.get(query)
            if known is None or known[0] != self._state.records:
                if len(self._pictures) > 16:
                    self._pictures.clear()
                known = self._pictures[query] = (self._state.records, picture(self._state, query))
            state, alerts = self._state, list(self._alerts.active.values())
            steps = min((worker.steps for worker in state.workers if worker.here), default=0)
            far = progress(self._told_facts, now=state.now, samples=state.samples, steps=steps, ended=bool(state.ended))
            if far["rate"] is not None:
                far["rate"] = float(f"{far['rate'] * state.rate_factor:.3g}")
            told = self._forecast_of(state)
            return known[1] | {
                "headline": _with_forecast(known[1]["headline"], told.rows, ended=bool(state.ended)),
                "run": str(self.run),
                "progress": far,
                "alerts": [
                    {"kind": alert.kind, "text": text, "at": round(alert.at, 1)}
                    for alert in alerts
                    if (text := sentence(state) if alert.kind == state.verdict.alert else alert.text)
                    and (alert.kind not in OF_VERDICT or alert.kind == state.verdict.alert)
                ],
                "hook": self.hook_failed,
                "read": round(self._follower.fraction, 3),
                "problem": self.problem,
                "forecast": told.rows,
                "withheld": told.withheld,
                "foretold_at": round(told.at, 1),
            }

    def _forecast_of(self, state: PageState) -> _Announced:
        """Returns the forecast, if it was made for the verdict that is shown."""
        return self._told if self._told.about == question(state) else _Announced()

    def metrics(self, scheme: str) -> str:
        """Returns what Prometheus scrapes: the run so far, in its text format."""
        with self._lock:
            return self._metrics.text(scheme=scheme)

    def read(self) -> bool:
        """Adds what has come; returns True if there was anything. Raises what `Follower.read` does."""
        run = newest(self._folder)
        self._follower.path = run / TRACE
        records = self._follower.read()
        if self._follower.begun_anew or run != self.run:
            with self._lock:
                self.run = run
                self._state, self._told = PageState(workers=0), _Announced()
                self._alerts, self._looked_at, self._was_live = AlertWatch(self._hook), 0.0, self._from_start
                self._metrics = Metrics(run=str(self.run))
                self._pictures.clear()
        for at in range(0, len(records), BATCH):
            with self._lock:  # for a moment at a time: somebody may be looking
                self._state.add_all(records[at : at + BATCH])
                self._metrics.add_all(records[at : at + BATCH])
        if records:
            with self._lock:
                self._state.waits.look_again()
        self._look_for_alerts()
        return bool(records)

    def _look_for_alerts(self) -> None:
        """Looks, once in a second of the run, whether there is something to be told; the past is told to nobody.

        How a run ends is told only if it was seen before. A loss that is NaN often ends it at once.
        """
        self._told_facts = self._facts()
        with self._lock:
            state = self._state
            if state.ended:
                if self._was_live:
                    self._alerts.look(state.now, last_causes(state))
                self._alerts.active.clear()
                self._was_live = False
            elif self._follower.fraction >= CAUGHT_UP and state.now >= self._looked_at + ALERTS_EVERY_S:
                self._looked_at, self._was_live = state.now, True
                self._alerts.look(state.now, causes(state))

    def _follow(self) -> None:
        """Reads until `close`. An error ends the reading, and the page says so."""
        while not self._over.is_set():
            try:
                fresh = self.read()
            except Exception as error:  # whatever it is, the page says why it stands still
                known = isinstance(error, PacelineError)
                self.problem = str(error) if known else f"the page stands still: {error!r} while reading the trace"
                return
            if not fresh:
                self._foretell()
                self._over.wait(LOOK_S)

    # ---- what another scheme would give --------------------------------------------------------------------
    def _foretell(self) -> None:
        """Starts a forecast once the workers' speeds are known, and again when somebody else holds them up, but not all
        the time."""
        if self._forecaster is None or (self._asked is not None and self._asked.is_alive()):
            return
        with self._lock:
            state, told = self._state, self._told
            workers = [worker for worker in state.workers if worker.here]
            known = workers and all(worker.steps >= FORECAST_AFTER_STEPS for worker in workers)
            if not known or (state.verdict.kind == "begun" and not state.ended):
                return
            about = question(state)
            every = FORECAST_EVERY_S if told.about == about else HOLD_S
            if told.rows and state.now < told.at + every and not state.ended:
                return
            if told.rows and told.about == about and not told.withheld:
                return
            measured = [
                Measured(
                    rank=worker.rank,
                    device=worker.device,
                    step_s=worker.usual_step_s,
                    spread_s=min(worker.spread_s, worker.usual_spread_s),
                    samples=worker.latest.samples / worker.latest.steps,
                    exchange_s=worker.usual_exchange_s,
                    host=worker.host,
                )
                for worker in workers
            ]
            at, measured_rate = state.now, usual_rate(state)
            calm = not state.verdict.names_something
        self._asked = threading.Thread(
            target=self._ask, args=(state, measured, about, at, measured_rate, calm), name="forecaster"
        )
        self._asked.daemon = True
        self._asked.start()

    def _ask(
        self,
        state: PageState,
        measured: Sequence[Measured],
        about: About,
        at: float,
        rate: float = 0.0,
        calm: bool = False,
    ) -> None:
        """Forecasts, on a thread of its own. `rate`: the measured throughput in samples/s; 0 where that is not
        known. `calm`: the workers hardly wait."""
        assert self._forecaster is not None
        forecast = self._forecaster(measured)
        withheld = withheld_because(forecast, rate, calm=calm)
        shown = [told for told in forecast if told.is_own or not withheld]
        rows = [
            {"scheme": told.scheme, "rate": round(told.rate), "kind": told.kind, "own": told.is_own} for told in shown
        ]
        with self._lock:
            if self._state is state:  # meanwhile the page may have gone over to another run
                self._told = _Announced(about, at, rows, withheld)


def question(state: PageState) -> About:
    """Returns what a forecast is made for: another verdict, or other workers, and it is made again."""
    return state.verdict.kind, tuple(sorted(state.verdict.ranks)), sum(worker.here for worker in state.workers)


def _with_forecast(headline: dict[str, Any], rows: Sequence[dict[str, Any]], *, ended: bool) -> dict[str, Any]:
    """Returns the headline with what the best other scheme would give, where something is waited for."""
    own = next((row["rate"] for row in rows if row["own"]), 0)
    best = max((row for row in rows if not row["own"]), key=lambda row: row["rate"], default=None)
    waits = headline["kind"] in ("workers", "uneven", "turns", "exchange") and headline["tone"] != "failed"
    if not (waits and best and own and best["rate"] >= WORTH_TRYING * own):
        return headline
    would = "would have trained" if ended else "would train"
    text = f"Under {best['scheme']} all together {would} about {times_text(best['rate'] / own)} times the samples."
    return headline | {"sentence": f"{headline['sentence']} {text}"}


def withheld_because(forecast: Sequence[Forecast], rate: float, *, calm: bool = False) -> str:
    """Returns why no other scheme is shown; "" if they are.

    A forecast that misses the run itself is worth nothing; nor is one that gains much where the workers hardly wait,
    since a scheme can save nothing but waiting and sending.
    """
    own = next((told for told in forecast if told.is_own), None)
    if own is None or rate <= 0:
        return ""
    if not 1 / MISSED < own.rate / rate < MISSED:
        return (
            f"No forecast for other schemes: this one's would be {own.rate:,.0f} samples/s, and {rate:,.0f} are "
            "measured, so something holds the run up that the simulator does not know."
        )
    most = max(told.rate for told in forecast)
    if calm and most > CALM_MAX * own.rate:
        return (
            f"No forecast for other schemes: it would be up to {most:,.0f} samples/s, and the workers wait too little "
            "for that."
        )
    return ""
