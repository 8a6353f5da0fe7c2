"""Collects what is known of a run while it goes on, and makes its summary afterwards.

Live runs feed it with the coordinator's reports, simulated ones with records of virtual time; `snapshot` is shown on
the terminal, `summary` becomes `summary.json`.
"""

from __future__ import annotations

import bisect
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.config import Config
from paceline.core.coordination.control_messages import NOTHING, Progress
from paceline.core.coordination.lifecycle import TARGET_REACHED
from paceline.core.coordination.party import EVALUATOR, Party
from paceline.core.trace import OVERLAP_VERDICTS, Decided, Evaluated, Leased, MemberChange, Record
from paceline.engine.specs import LANGUAGE_DATA
from paceline.observe.runs.collapse import EPOCHS_MIN, collapse, way_out
from paceline.observe.runs.goodput import Goodput
from paceline.observe.runs.summary import (
    CHANGES,
    Change,
    Faults,
    Staleness,
    Summary,
    WorkerSummary,
    overlap_of,
    perplexity_of,
    seconds_to_target,
)
from paceline.observe.terminal.progress import ProgressSnapshot, WorkerRow
from paceline.runtime.spec.job_spec import Recipe

WINDOW = 12  # progress reports over which a rate is taken


ROUND_LENGTHS = ("h", "tau", "steps")
"""Parameters of schemes that say how many local steps a worker makes between two exchanges."""


@dataclass(slots=True)
class _Worker:
    """Holds what is known of one worker."""

    device: str = "cpu"
    host: str = ""
    slowdown: float = 1.0
    latest: Progress = NOTHING
    state: str = "training"
    incarnations: int = 1
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def samples_per_second(self) -> float:
        """Returns the rate over the latest WINDOW reports; 0.0 before there are two."""
        if len(self.history) < 2:
            return 0.0
        (t0, n0), (t1, n1) = self.history[0], self.history[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else 0.0


class RunStatistics:
    """Counts for one run. The coordinator's thread writes, and the thread that shows reads.

    driver         live or sim
    train_samples  of the data set, by which epochs are counted
    begun_at       samples of an earlier incarnation of the run
    """

    def __init__(self, config: Config, train_samples: int, driver: str = "live", begun_at: int = 0) -> None:
        self._config, self._train_samples, self._driver = config, train_samples, driver
        self._begun_at = begun_at
        self._workers = [_Worker() for _ in range(config.cluster.workers)]
        for absent in self._workers[config.cluster.beginning :]:
            absent.incarnations, absent.state = 0, "absent"
        self._staleness, self._faults, self._goodput = Staleness(), Faults(), Goodput()
        self._evaluations: list[Evaluated] = []
        self._changes: list[Change] = []
        self._leased: Leased | None = None
        self._overlaps: dict[int, str] = {}  # by rank: what a worker has measured
        self._reason, self._seconds = "", 0.0
        self._recipe, self._model_length = Recipe(scheme=config.run.scheme), 0
        self._is_started, self._transport = False, ""

    def seated(self, rank: int, device: str, slowdown: float, host: str) -> None:
        """Notes on which device and host worker `rank` runs, and how much it is slowed down."""
        worker = self._workers[rank]
        worker.device, worker.slowdown, worker.host = device, slowdown, host

    def started(self, recipe: Recipe, model_length: int, transport: str = "", slices: Sequence[int] = ()) -> None:
        """Notes that training begins. `transport`: how vectors travel; "" when none do, or only in simulation.
        `slices`: the lengths of the servers' shards of the model."""
        self._goodput.slices = slices
        self._recipe, self._model_length, self._is_started = recipe, model_length, True
        self._transport = transport

    @property
    def has_started(self) -> bool:
        """Returns True once training has begun: before that, there is nothing worth a summary."""
        return self._is_started

    def incarnations(self, who: Party) -> int:
        """Returns how often a worker has joined."""
        return self._workers[who.index].incarnations

    @property
    def _known(self) -> list[tuple[int, _Worker]]:
        """Returns the workers that have ever joined, with their ranks."""
        return [(rank, worker) for rank, worker in enumerate(self._workers) if worker.incarnations]

    def steps(self, who: Party) -> int:
        """Returns the steps of a worker as it reported them last; 0 for any other party."""
        return self._workers[who.index].latest.steps if who.kind == "worker" else 0

    def progressed(self, rank: int, progress: Progress, now: float) -> None:
        """Takes a worker's report; rates are taken over the last WINDOW of them."""
        worker = self._workers[rank]
        worker.latest = progress
        worker.history.append((now, progress.samples))

    def recorded(self, record: Record) -> None:
        """Counts a record of the trace: staleness, rejected gradients, membership, evaluations."""
        self._staleness.add(record)
        self._goodput.add(record)
        self._faults.add(record)
        if isinstance(record, MemberChange) and record.event in CHANGES:
            self._changed(record)
        if isinstance(record, Decided) and record.verdict in OVERLAP_VERDICTS:
            self._overlaps[record.rank] = overlap_of(record)
        if isinstance(record, Leased):
            self._leased = record
        if isinstance(record, Evaluated):
            # By the time of the weights: an older snapshot may be evaluated after a newer one, in search of the first
            # that reached the target.
            bisect.insort(self._evaluations, record, key=lambda evaluated: evaluated.at)

    def _changed(self, record: MemberChange) -> None:
        """Notes that a party was lost, left, was drained, returned or was replaced."""
        who = Party.parse(record.party)
        steps = self.steps(who)
        self._changes.append(
            Change(at=record.at, party=record.party, event=record.event, reason=record.reason, steps=steps)
        )
        if who.kind == "worker":
            worker = self._workers[who.index]
            worker.state = "training" if record.event == "returned" else record.event
            worker.incarnations += record.event == "returned"

    def finished(self, reason: str, seconds: float) -> None:
        """Notes why and after how many seconds of training the run ended."""
        self._reason, self._seconds = reason, seconds

    @property
    def train_samples(self) -> int:
        """Returns the samples of the training set, as the launcher has found."""
        return self._train_samples

    @property
    def samples(self) -> int:
        """Returns the samples of all workers together, earlier incarnations of the run included."""
        if not self._begun_at:
            return sum(worker.latest.samples for worker in self._workers)
        return self._begun_at + sum(worker.latest.samples - worker.latest.samples_before for worker in self._workers)

    def _samples_before(self) -> list[int]:
        """Returns, by rank, the samples of earlier incarnations of the run.

        Workers are kept at moments of their own, so what they had trained adds up to more or less than what is in the
        weights of the checkpoint: that is divided among them in proportion.
        """
        before = [worker.latest.samples_before for worker in self._workers]
        if not self._begun_at or sum(before) == self._begun_at:
            return before
        weights = before if any(before) else [1] * len(before)
        edges = [self._begun_at * at // sum(weights) for at in itertools.accumulate(weights, initial=0)]
        return [high - low for low, high in itertools.pairwise(edges)]

    def is_lost(self, rank: int) -> bool:
        """Returns True for a worker that is lost or expelled, and not back."""
        return self._workers[rank].state in ("lost", "expelled")

    # ---- while it goes on --------------------------------------------------------------------------------
    def snapshot(self, elapsed_s: float) -> ProgressSnapshot:
        """Returns what the terminal and the live page show, `elapsed_s` seconds after the start of training."""
        fraction, done_before = self._fraction_done(elapsed_s)
        before = self._samples_before()
        return ProgressSnapshot(
            scheme=self._recipe.scheme,
            elapsed_s=elapsed_s,
            samples=self.samples,
            samples_before=self._begun_at,
            epochs=None if self._config.is_script else self.samples / max(1, self._train_samples),
            accuracy=self._evaluations[-1].accuracy if self._evaluations and not self._is_loss_only else None,
            loss=self._evaluations[-1].loss if self._is_loss_only else None,
            target=self._config.stop.target_accuracy or self._config.stop.target_loss or None,
            is_language=self._predicts_tokens,
            fraction_done=fraction,
            seconds_left=elapsed_s * (1 - fraction) / (fraction - done_before)
            if fraction and fraction > done_before
            else None,
            workers=tuple(self._row(rank, worker, before[rank]) for rank, worker in self._known),
        )

    def _fraction_done(self, elapsed_s: float) -> tuple[float | None, float]:
        """Returns how far the run is towards the nearest of its ends (0 to 1), and how much of that was done before it
        resumed.

        The first is None where no end is known; the target accuracy cannot be foretold.
        """
        stop = self._config.stop
        fractions = []
        # Of an own script nobody knows here how long an epoch is.
        if samples := stop.samples if self._config.is_script else stop.samples_of(self._train_samples):
            fractions.append((self.samples / samples, self._begun_at / samples))
        if stop.seconds:
            fractions.append((elapsed_s / stop.seconds, 0.0))
        if stop.steps:
            last = min((worker.latest for _, worker in self._known), key=lambda latest: latest.steps)
            fractions.append((last.steps / stop.steps, last.steps_before / stop.steps))
        done, before = max(fractions, default=(None, 0.0))
        return (None if done is None else min(1.0, done)), before

    def _row(self, rank: int, worker: _Worker, before: int) -> WorkerRow:
        """Returns one worker's line of the display."""
        summary = self._summary_of(rank, worker, before)
        shares = summary.shares
        return WorkerRow(
            rank=rank,
            host=worker.host,
            device=worker.device,
            slowdown=summary.slowdown,
            steps=summary.steps,
            samples_per_second=worker.samples_per_second(),
            computing=shares.computing,
            waiting=shares.waiting,
            communicating=shares.communicating,
            hidden=summary.hidden,
            staleness_mean=summary.staleness_mean,
            staleness_max=summary.staleness_max,
            state=worker.state if self._is_started else "joining",
        )

    # ---- afterwards --------------------------------------------------------------------------------------
    def _summary_of(self, rank: int, worker: _Worker, before: int) -> WorkerSummary:
        """Returns what the summary says of one worker. `before`: its samples of earlier incarnations of the run."""
        p = worker.latest
        return WorkerSummary(
            rank=rank,
            host=worker.host,
            device=worker.device,
            slowdown=worker.slowdown,
            steps=p.steps,
            exchanges=p.exchanges,
            samples=before + p.samples - p.samples_before,
            seconds_computing=p.seconds_computing,
            seconds_waiting=p.seconds_waiting,
            seconds_communicating=p.seconds_communicating,
            seconds_hidden=p.seconds_hidden,
            staleness_mean=self._staleness.mean(rank),
            staleness_max=self._staleness.max(rank),
            refused=self._faults.refused(rank),
            wild=self._faults.wild(rank),
            incarnations=worker.incarnations,
            overlap=self._overlaps.get(rank, ""),
        )

    def _accuracy_kept(self, target: float | None) -> float | None:
        """Returns the accuracy of the run's final model: the first that reached the target, if that ended it."""
        accuracies = [evaluated.accuracy for evaluated in self._evaluations]
        if target is not None and self._reason == TARGET_REACHED:
            return next((accuracy for accuracy in accuracies if accuracy >= target), None)
        return accuracies[-1] if accuracies else None

    @property
    def _predicts_tokens(self) -> bool:
        """Returns True if the loss is that of a token, of which the exponential is the perplexity."""
        return not self._config.is_script and self._config.data.name == LANGUAGE_DATA

    @property
    def _is_loss_only(self) -> bool:
        """Returns True if a loop has reported losses and no accuracy; what is not reported is 0."""
        return any(e.loss for e in self._evaluations) and not any(e.accuracy or e.chance for e in self._evaluations)

    def _is_gossip(self) -> bool:
        """Returns True if the model is a mean of the workers' own, which differ."""
        return self._recipe.make_scheme().model_of(self._config.cluster.servers) == "mean of workers"

    def _warning(self) -> str:
        """Returns a warning that the model was never exchanged or has collapsed, with the way out; "" while too little
        was trained to tell."""
        if never_met := self._without_exchange():
            return never_met
        trained, steps = self.samples - self._begun_at, sum(worker.latest.steps for worker in self._workers)
        if trained < EPOCHS_MIN * self._train_samples:
            steps = 0
        found = collapse(self._evaluations, steps, over=steps > 0)
        if not found:
            return ""
        recipe, workers = self._recipe, len(self._known)
        parameters = recipe.make_scheme().parameters()
        factor = recipe.rate_factors[-1]
        return f"{found} {way_out(recipe.scheme, parameters, recipe.optimizer.lr, workers, factor)}"

    def _without_exchange(self) -> str:
        """Returns a warning that no round of local steps was finished; "" where one was, or where the model holds
        samples all the same."""
        scheme, latest = self._recipe.make_scheme(), [worker.latest for worker in self._workers]
        if not scheme.trains_locally or any(progress.exchanges for progress in latest):
            return ""
        if self._goodput.samples_in_model(gossip=self._is_gossip()):
            return ""
        if not max((progress.steps - progress.steps_before for progress in latest), default=0):
            return ""
        flag = next((f" (--{scheme.name}.{name})" for name in ROUND_LENGTHS if name in scheme.parameters()), "")
        return (
            f"Nobody made an exchange, so the model is the one that the run began with: a round of {scheme.name} takes "
            f"longer than this run. Train for longer, or take fewer local steps{flag}."
        )

    def summary(self) -> Summary:
        """Returns the summary of the run as it is now."""
        config = self._config
        target, target_loss = config.stop.target_accuracy or None, config.stop.target_loss or None
        loss = self._evaluations[-1].loss if self._evaluations else None
        before = self._samples_before()
        return Summary(
            scheme=self._recipe.scheme,
            driver=self._driver,
            seed=config.run.seed,
            reason=self._reason,
            seconds=self._seconds,
            samples=self.samples,
            samples_per_second=max(0, self.samples - self._begun_at) / self._seconds if self._seconds else 0.0,
            test_accuracy=None if self._is_loss_only else self._accuracy_kept(target),
            test_loss=loss,
            target_accuracy=target,
            target_loss=target_loss,
            goodput=self._goodput.share(config.cluster.workers, self._seconds, gossip=self._is_gossip()),
            dropped=self._goodput.dropped,
            perplexity=perplexity_of(loss) if self._predicts_tokens else None,
            seconds_to_target=seconds_to_target(self._evaluations, target, target_loss),
            bytes_up=sum(worker.latest.bytes_up for worker in self._workers),
            bytes_down=sum(worker.latest.bytes_down for worker in self._workers),
            bytes_shared=sum(worker.latest.bytes_shared for worker in self._workers),
            transport=self._transport,
            workers=tuple(self._summary_of(rank, worker, before[rank]) for rank, worker in self._known),
            model=config.task[0],
            data=config.task[1],
            servers=config.cluster.servers,
            step_ms=config.cluster.step_ms or None,
            learning_rate=self._recipe.optimizer.lr,
            parameters=self._recipe.parameters,
            model_length=self._model_length,
            faults=tuple(self._changes),
            views=1 + sum(change.party != str(EVALUATOR) for change in self._changes),
            leased=self._leased,
            warning=self._warning(),
        )
