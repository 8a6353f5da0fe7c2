"""A worker's part in a run, seen from its own training loop.

The loop and the scheme are one machine seen from two sides: the scheme asks for a gradient (`Compute`) or for local
steps (`Train`), the loop's backward provides them, and `step()` resumes the scheme with the result and carries its
effects out until it asks again.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from paceline.config.validation import check_queue
from paceline.core.effects import Compute, Data, Train
from paceline.core.errors import ConfigError, PacelineError, PeerLost, Stopped, Undone, ends_well
from paceline.engine.data.batches import Batches, MapStyle
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.leased_batches import LeasedBatches
from paceline.engine.data.partition_plan import make_partition, parse_partition
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.optim.unused_parameters import ZeroTensors
from paceline.live.control.session import Session
from paceline.live.protocol import control_messages as control
from paceline.runtime.checkpointing.worker_position import Kept, PositionLog, set_generators
from paceline.runtime.checkpointing.worker_state import WorkerStateCapture
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.lease_client import LeaseClient, quotas_of
from paceline.runtime.worker.lifecycle import WorkerLifecycle
from paceline.runtime.worker.preemption_notice import PreemptionNotice
from paceline.runtime.worker.progress import ProgressCounters, ResumedProgress
from paceline.runtime.worker.sample_counts import Allowance, Clock, InRounds
from paceline.runtime.worker.steps.drop_in import DropInOptimizer
from paceline.runtime.worker.steps.local_work import LocalWork
from paceline.runtime.worker.steps.loop_checks import LoopGuard
from paceline.runtime.worker.steps.lr_watch import LrWatcher, rate_of
from paceline.runtime.worker.steps.overlap import Overlap
from paceline.runtime.worker.steps.sample_schedule import SampleSchedule
from paceline.runtime.worker.steps.step_timer import Stopwatch


class Pace:
    """One worker. Iterate over `batches`, call backward, then `step`; `close` at the end, or use it as a context."""

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        spec: ProcessSpec,
        session: Session,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        measure: Callable[[], float] | None = None,
        behind: ResumedProgress = ResumedProgress(),  # noqa: B008  frozen
    ) -> None:
        """Joins the run; returns when training starts.

        `optimizer` does the local steps of schemes that train locally (one made from the recipe by default).
        `measure` returns the seconds of a step, for schemes and shares that go by speed; a speed of 0 is unknown.
        `behind`: where the run is taken up again.
        """
        self.rank = spec.who.index
        self.recipe = recipe
        self.device = torch.device(spec.device)
        self._spec, self._session, self._node = spec, session, session.node
        self._flat = FlatModel(model, self.device, optimizer=optimizer, by_rows=recipe.by_rows(spec.servers))
        buffers = Buffers(model, spec.buffers)
        self._work = LocalWork(self._flat, recipe, optimizer)
        self._guard = LoopGuard(model, self._flat, self._work.steps_of_user)
        self._update = self._make_update(behind.samples)
        self._followed = LrWatcher(optimizer, recipe.optimizer)
        self._drop_in = DropInOptimizer(optimizer, self._flat, self.step) if optimizer is not None else None
        self._watch = Stopwatch(self.device, session.over)
        self._streams: dict[int, Batches | LeasedBatches] = {}
        self._leased: LeasedBatches | None = None  # one of them
        self._answered = 0  # samples of this incarnation's leases of which nothing is under way
        self._batch_samples = self._own_samples = self._exchanges = 0
        self._counts = ProgressCounters()
        self._node.exhibits["buffers"] = lambda _slice: (buffers.snapshot(), float(self._counts.samples))
        self._closed = False
        self._behind, self._begun_at = behind, behind.samples
        self._capture = self._make_capture(buffers)
        self._positions = PositionLog(self._node, self.device, self._take_stock)
        session.on_replaced = self._tell_past
        session.on_capture = lambda order: self._positions.want(order.version)
        self._membership = WorkerLifecycle(spec, session, recipe, self._flat, buffers)
        self.plan = self._membership.join(self._update, measure, behind.clock, behind.samples)
        self._count_samples()
        self._overlap = self._make_overlap()
        self._node.times.on_wait = self._waited
        self._former_steps = session.expect(control.Go).steps
        self._membership.begin()
        if session.late:
            self._behind = ResumedProgress(batches=self._former_steps)
        self._remember()
        self._notice = PreemptionNotice(session)
        session.reports.begin(self._progress)
        self._take(self._node.advance)

    def _make_capture(self, buffers: Buffers) -> WorkerStateCapture:
        return WorkerStateCapture(
            self._node,
            self.recipe.make_scheme(),
            self._spec.servers,
            length=len(self._flat),
            work=self._work,
            buffers=buffers,
            update=self._update,
        )

    def _make_update(self, samples_seen: int) -> Any:
        update = self._work.rule()
        update.samples_seen = samples_seen
        if self._spec.workers > 1 and self.recipe.make_scheme().uses_mean(self._spec.servers):
            update.zeros_unused = ZeroTensors(self._flat.tensors)  # a mean does not say what its members have used
        return update

    # ---- the user's side ---------------------------------------------------------------------------------
    @property
    def workers(self) -> int:
        return self.plan.workers

    @property
    def over(self) -> bool:
        """Is the run over, for this worker at least?"""
        return self._ended or bool(self._session.notice)

    @property
    def _ended(self) -> bool:
        return self._closed or self._session.over.is_set() or self._spent or self._steps_done

    @property
    def steps(self) -> int:
        """Mini-batches done by this worker."""
        return self._counts.steps

    @property
    def batch_size(self) -> int | None:
        """Size of the next mini-batch where the scheme says it (`batches` knows), None where it is the loop's own."""
        return self._work.samples_wanted

    def batches(
        self, data: Dataset | MapStyle, batch_size: int, *, epochs: int | None = 1, partition: str = "uniform"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This worker's mini-batches of its share of `data`, on its device, until the epochs or the run are over.

        Every sample is in exactly one worker's share; shares are redrawn every epoch, and a later call goes on with
        the next epoch. A scheme may ask for batches of another size, which then go on over the end of an epoch.
        `epochs` = None never ends by itself. Raises ConfigError for shares that cannot be made.
        """
        stream = self._streams.get(id(data))
        if stream is None:
            stream = self._streams[id(data)] = self._make_stream(data, batch_size, partition)
            if isinstance(stream, Batches):
                self._guard.asks_for(batch_size, stream.share_size, len(data) / self.workers)
            if self._behind.memories is not None:
                stream.go_on(self._behind.memories.entry.position)
                self._counts.resume(self._behind.memories.entry.steps, stream.samples)
                self._behind = ResumedProgress()
            elif self._behind.batches:
                stream.skip(self._behind.batches)
                self._positions.corrected(stream.samples)
                if not self._former_steps:  # the coordinator adds up the incarnations of one worker
                    self._counts.resume(self._behind.batches, stream.samples)
                self._behind = ResumedProgress()
        stream.epochs = None if epochs is None else stream.epoch + epochs
        self._own_samples = batch_size
        while not self.over:
            size = self._next_size()
            if size is not None:
                batch = stream.take(size) if size else None
            else:
                batch = next(stream, None)
            if batch is None:
                self._guard.end_of_batches()
                return
            self._guard.batch()
            self._batch_samples = len(batch[1])
            self._watch.hand_out()
            try:
                yield batch
            finally:
                self._watch.rest()

    def _make_stream(self, data: Dataset | MapStyle, batch_size: int, partition: str) -> Batches | LeasedBatches:
        recipe, seed = parse_partition(partition), self.recipe.seed
        if not recipe.leased:
            labels = data.y.cpu().numpy() if isinstance(data, Dataset) else None
            cutter = make_partition(partition, len(data), self.workers, labels, seed, self.plan.seconds_per_step)
            return Batches(data, cutter, self.rank, batch_size, device=self.device)
        check_queue(partition, self.recipe.make_scheme(), self._spec.servers)
        if self._leased is not None:
            raise ConfigError(
                f"partition {partition!r}: another data set of this loop is leased; share this one: uniform"
            )
        size = recipe.lease_size(len(data), self.workers, batch_size)
        lender = LeaseClient(self._session, len(data), size, self._spec.timeout_s)
        self._leased = LeasedBatches(data, lender, batch_size, seed=seed, device=self.device)
        return self._leased

    def step(self, samples: int | None = None) -> None:
        """Hand over what backward has just computed, and carry on with whatever weights the scheme gives.

        `samples`: size of the batch, if it did not come from `batches`. Does nothing once the run is over.
        Raises PeerLost or TimedOut when another party is missing.
        """
        if self._ended:  # a step that is made is handed over, also by one who is to go home
            if not self._closed:
                self._session.check()
            return
        self._guard.before_step()
        self._follow_rate()
        samples = samples if samples is not None else max(1, self._batch_samples)
        seen = self._samples.now
        self._work.apply(seen)
        if self._node.role.updates_alone:
            self._update.samples_seen = seen
        seconds = self._watch.passed(self._seconds_emulated(samples))
        seconds -= self._overlap.seconds_lost() if self._overlap else 0.0
        early = self._overlap if self._overlap and self._overlap.handed_over(samples) else None
        last = self._trained(samples)
        result = None if early else self._work.done(samples, seconds, self._data, last=last)
        if self._leased:
            self._leased.forget_taken()
        self._counts.add(samples, seconds)
        self._session.reports.spent(self._node.now(), "computing", seconds, 1, samples, exchanges=self._exchanges)
        self._exchanges = 0
        if early or result is not None:
            self._positions.contributed(self._counts.steps, self._position)
        if early:
            self._take(early.finish)
        elif result is not None:
            self._flat.settle()
            self._take(lambda: self._node.advance(result))
        else:
            self._flat.zero_grad()
            self._guard.note_weights()
            self._begins = False
            self._watch.begin()

    @property
    def optimizer(self) -> DropInOptimizer:
        """The optimizer that `join` was given, for frameworks that call its `step`, which is `pace.step` here."""
        assert self._drop_in is not None, "only a loop of one's own has an optimizer"
        return self._drop_in

    def scheduler(self, scheduler: torch.optim.lr_scheduler.LRScheduler, *, every: int) -> SampleSchedule:
        """`scheduler`, which makes one step for `every` samples that all workers together have trained.

        Take the samples that lie between two of its steps in a plain loop: a batch, or an epoch. Its own `step` need
        not be called any more. Raises ConfigError for one that goes by something else.
        """
        schedule = SampleSchedule(scheduler, every, lambda: self._samples.now)
        self._followed.schedules.append(schedule)
        return schedule

    def close(self) -> None:
        """Take no further part, and load the final model, once nobody trains any more."""
        if not self._closed:
            self._closed = True
            if self._overlap:
                self._overlap.end()
            self._positions.end()
            notice = self._session.notice
            reason = self._session.stop_reason or notice or self._own_reason
            try:
                self._membership.leave(reason, home=bool(notice))
            finally:
                self._notice.close()
                self._guard.end()

    def __enter__(self) -> Pace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if kind is None or ends_well(error):
            self.close()
        else:
            what = str(error) if isinstance(error, PacelineError) else f"{kind.__name__}: {error}"
            details = "" if isinstance(error, PacelineError) else "".join(traceback.format_exception(error))
            self.abandon(f"worker {self.rank}: {what}", details)

    def abandon(self, cause: str, details: str = "") -> None:
        """Tell the coordinator that this worker failed."""
        if not self._closed:
            self._closed = True
            self._notice.close()
            self._guard.end()
            with contextlib.suppress(PacelineError):  # somebody may be there to hear it
                self._session.tell(control.Failed(cause=cause[:2000], details=details[-8000:]))
            self._session.close()

    # ---- one step ----------------------------------------------------------------------------------------
    def _take(self, advance: Callable[[], Compute | Train]) -> None:
        """Let the scheme go on; what it asks for next is what the loop's next backward is for."""
        before, anew = self._clock, self._node.begun_anew
        while True:
            try:
                wanted = advance()
                self._flat.zero_grad()
                self._exchanges = int(self._work.begin(wanted))
                self._begins = True
                break
            except Stopped:
                return
            except Undone:  # the weights will not all come: a server was replaced meanwhile
                advance = self._node.advance
        self._counts.exchanges += self._exchanges
        if self._node.role.goes_back and self._clock == before:
            self._positions.undone()
        self._answered = self._handed
        if self._node.begun_anew > anew:  # what was handed over up to here is in the servers, or never will be
            self._tell_past()
        self._positions.between()
        if self._overlap:
            self._overlap.prepare(wanted)
        self._guard.note_weights()
        self._watch.begin()

    @property
    def _position(self) -> int:
        """Samples of its share that are behind this worker."""
        return next((stream.samples for stream in self._streams.values()), 0)

    @property
    def _data(self) -> Data:
        """Which samples the mini-batch at hand is made of, where they are leased."""
        return self._leased.taken if self._leased else ()

    @property
    def _handed(self) -> int:
        return self._leased.handed if self._leased else 0

    def _tell_past(self) -> None:
        """After a server was replaced: what does not come any more."""
        if self._leased:
            with contextlib.suppress(PeerLost):  # without a coordinator the run ends in any case
                self._session.tell(control.Past(handed=self._answered))

    @property
    def _clock(self) -> int:
        """What this worker's role calls its clock, or its round."""
        role = self._node.role
        return next(iter(role.progress_key(role.join_state())), 0)

    def _take_stock(self) -> Kept:
        return self._capture.take(self.plan.layout.slices)

    def _remember(self) -> None:
        """Go on with what an earlier incarnation of the run has left, if that is how this one begins."""
        memories = self._behind.memories
        if memories is not None:
            self._capture.give_back(memories, self.plan.layout.slices)
            set_generators(memories.entry.generators, self.device)
        if memories is None:
            self._positions.begin(self._clock, self._behind.batches, 0)
        else:
            self._positions.begin(self._clock, memories.entry.steps, memories.entry.position)

    def _make_overlap(self) -> Overlap | None:
        """None where there is nothing to gain, and in a step that is drawn out: nothing leaves before it is over."""
        wanted = self._spec.overlap == "on" or (self._spec.overlap == "auto" and not self.plan.crowded)
        whole = self._flat.by_rows or len(self.plan.layout.slices) < 2
        if not wanted or self._spec.step_seconds or whole:
            return None
        self._work.late = True
        return Overlap(self._flat, self._node, lambda: self._batch_samples, lambda: self._data)

    def _seconds_emulated(self, samples: int) -> float:
        """A batch takes its time in proportion to a whole one of the loop's own size."""
        part = samples / self._own_samples if self._own_samples else 1.0
        return self._spec.step_seconds * part

    def _follow_rate(self) -> None:
        """A scheduler of the user's own changes the numbers of the optimizer that only tells the recipe."""
        changed = self._followed.changed()
        if changed is not None:
            self._warn_of_schedulers()
            self._update.follow(self.recipe.of_rule(changed))
            self._session.tell_rate(self._spec.servers, rate_of(changed))

    def _warn_of_schedulers(self) -> None:
        """Once."""
        if self.rank == 0 and self._followed.changes == 1 and self.plan.workers > 1 and not self._samples.lock_step:
            print(
                f"{self.recipe.scheme}: a scheduler that each worker steps by hand runs at that worker's pace; what a "
                "worker contributes counts at its own rate",
                file=sys.stderr,
            )

    # ---- samples of all workers --------------------------------------------------------------------------
    def _told(self) -> int:
        """The coordinator's last total, and what was trained here since.

        Before the first total there is what earlier incarnations of the run have left.
        """
        before = max(self._begun_at, self._session.total_samples)
        return before + self._counts.samples - self._counts.reported

    def _taking_part(self) -> int:
        return self.plan.workers - len(self._session.departed)

    def _count_samples(self) -> None:
        """From the beginning of training."""
        lock_step = self.recipe.make_scheme().lock_step
        self._samples = Clock(lambda: self._node.role, lock_step=lock_step, workers=self._taking_part, told=self._told)
        self._allowance: Allowance | None = None
        if self.plan.samples and lock_step:
            self._allowance = InRounds(self.plan.samples, self._samples)
        elif self.plan.samples:
            self._allowance = quotas_of(self._session, self._spec.timeout_s)
        self._begins = True  # is the next mini-batch the first for an exchange?
        self._spent = False  # are there no samples left to train?

    def _next_size(self) -> int | None:
        """Of the next mini-batch: what the scheme says, or less where no more may be trained; None: the loop's own."""
        if self._allowance is None or self._leased:
            return self.batch_size
        size = self._allowance.size(self.batch_size or self._own_samples, begins=self._begins)
        self._spent = not size
        return size if self.batch_size or size < self._own_samples else None

    def _trained(self, samples: int) -> bool:
        """Count a mini-batch. Is it the last that may be trained for this exchange?"""
        self._samples.trained(samples)
        if self._allowance is None or self._leased:
            return False
        self._allowance.trained(samples)
        wanted = self.batch_size or self._own_samples or samples
        return self._work.left > 1 and not self._allowance.size(wanted, begins=False)

    @property
    def _own_reason(self) -> str:
        if self._spent:
            return "epochs"
        return "steps" if self._steps_done else "every worker was done"

    @property
    def _steps_done(self) -> bool:
        return 0 < self._spec.steps <= self._counts.steps + self._former_steps

    # ---- reports -----------------------------------------------------------------------------------------
    def _progress(self) -> control.Progress:
        times, traffic, shared = self._node.times, self._membership.traffic(), self._session.shared()
        return self._counts.progress(times, traffic, shared, self._watch.seconds_at_batch)

    def _waited(self, waiting: float, communicating: float, hidden: float) -> None:
        at, spent = self._node.now(), self._session.reports.spent
        spent(at, "waiting", waiting)
        spent(at, "communicating", communicating, hidden=hidden)
