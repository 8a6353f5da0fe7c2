"""`Pace`: a worker's part in a run, as its training loop sees it.

    with Pace(model, recipe, spec, session) as pace:           joins the run
        for x, y in pace.batches(dataset, batch_size=32):      its share of the samples
            loss_of(model(x), y).backward()
            pace.step()                                        instead of optimizer.step()

Where things are: `joining.py` makes the parts, `loop/batch_feed.py` has the samples, `loop/step_runner.py` makes a
step, `loop/run_end.py` says whether the run is over, `lifecycle.py` talks to the others before training and after it.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.errors import ConfigError, PacelineError, PeerLost, Stopped, ends_well
from paceline.engine.data.batches import MapStyle
from paceline.engine.data.dataset import Dataset
from paceline.engine.forward_samples import SamplesOf
from paceline.engine.model.mixed_precision import Precision
from paceline.engine.optim.evaluated_weights import evaluates_others, show_evaluated, show_trained
from paceline.engine.sharded.gathered_model import GatheredModel
from paceline.live.control.session import Session
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.joining import join_run, split_backward
from paceline.runtime.worker.loop.loader import LoaderSettings, SharedLoader, begins_anew
from paceline.runtime.worker.loop.progress import ResumedProgress
from paceline.runtime.worker.loop.shard import StreamShard
from paceline.runtime.worker.loop_state import at_exchange, save_state
from paceline.runtime.worker.schedules.loop_schedules import LoopProgress, LoopSchedules
from paceline.runtime.worker.schedules.sample_schedule import SampleSchedule
from paceline.runtime.worker.shared_model import shared_weights
from paceline.runtime.worker.sharing.shared_plateau import SharedPlateau
from paceline.runtime.worker.sharing.shared_values import SharedValues
from paceline.runtime.worker.steps.constraint import Constraint, limit
from paceline.runtime.worker.steps.drop_in import ONLY, DropInOptimizer, drop_ins
from paceline.runtime.worker.steps.split_backward import LossOf, plain_backward

REASON_MAX = 200
"""Characters of the reason why a loop ends a run."""
SUPERSEDED = (
    "this run ended when paceline.join was called again in this process; several models go to one: "
    "join({name: model, ...}, {name: optimizer, ...})"
)
IN_FULL = ("epochs", "samples", "steps", "seconds", "every worker was done")
"""Reasons of an end that the run was meant to have, so that its schedules are due."""


class Pace:
    """Takes part in a run as one worker: iterate over `batches`, call backward, then `step`; `close` at the end.

    It is a context manager: an exception in the block tells the coordinator that this worker has failed.
    """

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
        flat: GatheredModel | None = None,
        samples_of: SamplesOf | None = None,
        own_schedule: bool = False,
        constraint: Constraint | None = None,
    ) -> None:
        """Joins the run; returns when training starts.

        `optimizer` does the local steps of schemes that train locally (one made from the recipe by default).
        `measure` returns the seconds of a step, for schemes and shares that go by speed; a speed of 0 is unknown.
        `own_schedule`: schedulers go by this worker's steps, and not by the samples of all.
        `behind`: where the run is taken up again. `flat`: the vector of a `model` that several processes hold.
        `samples_of`: counts a call of the model, whose first tensor says it by default. `constraint`: limits its
        weights after each step.
        """
        self._worker = join_run(
            model,
            recipe,
            spec,
            session,
            optimizer=optimizer,
            measure=measure,
            behind=behind,
            flat=flat,
            samples_of=samples_of,
            constraint=constraint,
        )
        self._constraint, self._split = constraint, split_backward(self._worker)
        self.rank, self.device = self._worker.run.rank, self._worker.run.device
        self.recipe, self.plan = recipe, self._worker.run.plan
        self._values = SharedValues(session, self.rank)
        self._plateaus: list[SharedPlateau] = []
        self._own_optimizer = optimizer
        own, steps = self._worker.model, self._worker.model.work.steps_of_user
        self.optimizers = drop_ins(optimizer, own.flat, self.step, self._worker.samples.cleared, steps)
        self._schedules = LoopSchedules(
            list(self.optimizers.values()),
            self._progress_of_loop,
            self._worker.steps.rate.add,
            own=own_schedule,
            says=self.rank == 0,
        )

    # ---- the run -----------------------------------------------------------------------------------------
    @property
    def workers(self) -> int:
        """Returns the number of places for workers in the run, also of those that are absent."""
        return self.plan.workers

    @property
    def over(self) -> bool:
        """Returns True if the run is over, for this worker at least."""
        return self._worker.end.over

    @property
    def steps(self) -> int:
        """Returns the mini-batches done by this worker."""
        return self._worker.counts.steps

    @property
    def total_samples(self) -> int:
        """Returns the samples that all workers together have trained, as last told: about four times a second, and at
        the end of the run."""
        clock = self._worker.sizes.clock
        return clock.at_end if self._worker.end.closed else clock.reported

    @property
    def lost(self) -> set[int]:
        """Returns the ranks of workers that were lost and are not back."""
        return set(self._worker.run.session.lost_ranks)

    @property
    def batch_size(self) -> int | None:
        """Returns the size of the next mini-batch where the scheme says it (`batches` knows); None where it is the
        loop's own."""
        return self._worker.sizes.by_scheme

    # ---- the loop ----------------------------------------------------------------------------------------
    def batches(
        self, data: Dataset | MapStyle, batch_size: int, *, epochs: int | None = 1, partition: str = "auto"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields this worker's mini-batches of `data`, on its device, until the epochs or the run are over.

            data        a Dataset, or anything with items by index: (x, y)
            batch_size  samples in a mini-batch; a scheme may ask for other sizes, across the end of an epoch
            epochs      passes of all workers together, each sample in one worker's batch; None: without end; a later
                        call goes on with the next epoch
            partition   who trains what. By default each worker takes the next samples when it is free, so that fast
                        ones train more; in lock-step with equal rounds all have equal shares

        x is [b, ...], y is [b]. Raises ConfigError for shares that cannot be made.
        """
        self._worker.samples.check_batches()
        return self._worker.feed.batches(data, batch_size, epochs, partition, anew=begins_anew())

    def loader(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        *,
        epochs: int | None = 1,
        partition: str = "auto",
        **settings: Any,
    ) -> SharedLoader:
        """Returns the same as `batches`, but of whatever a torch DataLoader yields (dicts, tuples, strings), not moved.

            dataset     any data set with items by index, or a `shard`: then `epochs` are passes over it
            batch_size  samples in a batch; None for a `shard` whose items are batches
            settings    a DataLoader's: how it loads (`collate_fn`, `num_workers`, `worker_init_fn`, ...), `sampler`
                        and `generator` (give all workers the same ones), `drop_last`: of a pass, what is no batch of
                        each worker; and `samples_of`: how many samples a batch counts as, by default its items

        With a `batch_size` of None, a batch counts as many samples as its first tensor is long. Made once, the
        loader may be iterated over again and again, for `epochs` each time. Raises ConfigError for what does not go
        together.
        """
        self._worker.samples.check_batches()
        told = LoaderSettings.of(dataset, batch_size, partition, settings, sharded=isinstance(dataset, StreamShard))
        feed = self._worker.feed
        if isinstance(dataset, StreamShard):
            passes = functools.partial(feed.streamed, dataset, batch_size, epochs, told)
            return SharedLoader(dataset, batch_size, None, lambda _anew: passes(), told)
        begin = functools.partial(feed.loaded, dataset, batch_size or 1, epochs, partition, told)
        drawn = dataset if told.sampler is None else told.sampler
        samples = len(drawn) if isinstance(drawn, Sized) else None
        if told.drop_last and samples is not None:
            samples = feed.whole_batches(samples, batch_size or 1, partition)
        return SharedLoader(dataset, batch_size, samples, begin, told)

    def shard(self, iterable: Iterable[Any]) -> StreamShard:
        """Returns this worker's part of what can only be iterated over: item n of a pass is that of worker n modulo
        `workers`.

        `pace.loader(pace.shard(stream), batch_size)` makes batches of it; for a DataLoader of your own it is a data
        set. `state_dict` and `load_state_dict` keep its position. All workers have to iterate over the same items in
        the same order.
        """
        self._worker.feed.pass_of.divided = True
        return StreamShard(iterable, self.rank, self.workers)

    def backward(self, loss_of: LossOf, *batch: Any, precision: Precision | None = None) -> Tensor:
        """Makes `loss_of(*batch).backward()`, in parts from the moment at which memory does not hold a whole batch, and
        returns the loss.

        `loss_of` returns the mean loss of the samples that it is given, which are the first dimension of each tensor.
        `precision`: runs the passes, where they are not to run as they are. Raises what `loss_of` raises, and the error
        of the allocator where parts do not help (docs/own-loop.md).
        """
        make = plain_backward if precision is None else precision.backward
        return self._split.backward(loss_of, batch, make)

    def step(self, model: str | int | None = None, samples: int | None = None) -> None:
        """Hands over what backward has just computed, and carries on with whatever weights the scheme gives.

        `samples`: of the batch, or of all whose gradients were added up; it may be the only argument. By default they
        are those that `batches` or `loader` gave, or else those that the model was called with (docs/own-loop.md).
        `model`: which one of several is trained; by default all. Does nothing once the run is over.
        Raises PeerLost or TimedOut when another party is missing, and ConfigError after another `join` or if nobody
        knows the samples.
        """
        if isinstance(model, int):
            model, samples = None, model
        self._hand_over(model, samples, self._worker.samples.take())

    def _hand_over(self, model: str | None, samples: int | None, counted: int | None) -> None:
        """Makes a step. `samples`: as the loop gives them; `counted`: by calls of the model."""
        worker, end = self._worker, self._worker.end
        if end.superseded:
            raise ConfigError(SUPERSEDED)
        if end.closed:
            return
        if not (end.ended or worker.steps.ended):  # a step that is made is handed over, also by one that is drained
            worker.steps.step(worker.samples.of(samples, counted), model)
            worker.samples.stepped()
        if end.ended or worker.run.session.over.is_set():
            worker.run.session.check()
            worker.steps.end()  # at once: the others wait for it, whatever the loop does next

    @property
    def optimizer(self) -> DropInOptimizer:
        """Returns the optimizer that `join` was given, for frameworks that call its `step`, which is `pace.step` here.

        Raises ConfigError where there are several: they are in `pace.optimizers`, by the names of the models.
        """
        if list(self.optimizers) != [ONLY]:
            raise ConfigError(f"this run has several optimizers: pace.optimizers[...], of {', '.join(self.optimizers)}")
        return self.optimizers[ONLY]

    def scheduler(self, scheduler: torch.optim.lr_scheduler.LRScheduler, *, every: int) -> SampleSchedule:
        """Returns `scheduler`, which from now on makes one step for `every` samples that all workers together have
        trained.

        Give the samples between two of its steps in a plain loop: a batch, or an epoch. Its own `step` need not be
        called any more. Raises ConfigError for a scheduler that goes by something else.
        """
        samples = lambda: self._progress_of_loop().samples  # noqa: E731  the same on all ranks of a worker
        schedule = SampleSchedule(scheduler, every, samples, says=self.rank == 0)
        self._worker.steps.rate.add(schedule)
        self._schedules.add(schedule)
        return schedule

    def _progress_of_loop(self) -> LoopProgress:
        """Returns what schedulers go by that the loop steps."""
        worker, passes = self._worker, self._worker.feed.pass_of
        steps, own = worker.counts.here
        return LoopProgress(
            samples=max(worker.sizes.clock.now, passes.samples),
            own=own,
            steps=steps,
            fullness=passes.fullness,
            shared=passes.bounded or passes.divided,
            passing=worker.feed.holds if passes.shared else None,
            over=worker.end.over,
        )

    # ---- what one worker decides -------------------------------------------------------------------------
    @property
    def decides(self) -> bool:
        """Returns True for the worker whose measurements count: worker 0, or the lowest rank that is not lost.

        Let it alone measure the model of all, keep the best one, and stop the run; what it shares holds for all.
        """
        return self._values.decides

    def share(self, name: str, value: Any) -> None:
        """Gives numbers, texts, lists or dicts to all workers, under a name; the last value of a name holds.

        Nobody waits for it. Raises ConfigError for what is not JSON.
        """
        self._values.share(name, value)

    def shared(self, name: str, default: Any = None) -> Any:
        """Returns the last value shared under that name that has arrived; after `close` it is the same on all."""
        return self._values.get(name, default)

    def plateau(self, scheduler: ReduceLROnPlateau) -> ReduceLROnPlateau:
        """Returns `scheduler`; from now on the measurements of the worker that decides change the rates of all workers,
        and `step` of the others does nothing. Raises ConfigError for another kind of scheduler."""
        plateau = SharedPlateau(scheduler, self._values, f"plateau {len(self._plateaus)}")
        self._plateaus.append(plateau)
        self._worker.steps.rate.add(plateau)
        return scheduler

    # ---- the model ---------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def shared_model(self) -> Iterator[nn.Module]:
        """Lends the model with the weights and the batch-norm statistics of all workers, for an evaluation; this
        worker's own are back after the block.

        Once the run is over the others do not answer any more: then it has this worker's own, and `pace.close()` loads
        the final ones, which it has after that. Raises PeerLost or TimedOut when nobody has them.
        """
        run, flat = self._worker.run, self._worker.model.flat
        if self._worker.end.closed:
            yield flat.module
            return
        if evaluates_others(self._own_optimizer):  # all have the same weights, and only here it can turn them
            flat.settle()
            with self._worker.statistics.showing():
                yield flat.module
            return
        try:
            weights = shared_weights(run)
        except Stopped:
            weights = flat.weights()
        with self._worker.statistics.showing(), flat.showing(weights) as module:
            yield module

    @property
    def at_exchange(self) -> bool:
        """Returns True if `state_dict` has a whole state after the last step, as where that has ended an exchange."""
        return at_exchange(self._worker)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the loop after the last step, as tensors and plain values: save it with `torch.save`.

        It has the model of all, the optimizer wherever its state is, the place in the data and torch's generators;
        `join(state=...)` goes on from it. Raises ConfigError where there is no whole state, PeerLost or TimedOut.
        """
        try:
            return save_state(self._worker)
        except Stopped:
            raise ConfigError(
                f"pace.state_dict() after the run was over ({self._worker.end.reason}): there is nothing to go on "
                "from; call pace.close() and save model.state_dict()"
            ) from None

    def load_state_dict(self, state: Mapping[str, Any]) -> NoReturn:
        """Raises ConfigError: a state has to be there when the run begins, so `join` takes it."""
        raise ConfigError(
            "pace.load_state_dict(...): the run has begun; give the state to paceline.join(..., state=state)"
        )

    def report(self, *, accuracy: float = 0.0, loss: float = 0.0) -> None:
        """Reports how good the model is: for the trace, the live page, hooks, the summary, and the target of the run.

        `accuracy` goes from 0 to 1. Raises ConfigError for another one.
        """
        if not 0 <= accuracy <= 1:
            raise ConfigError(f"pace.report(accuracy={accuracy:g}): it goes from 0 to 1")
        self._worker.tell(loop_messages.Reported(accuracy=float(accuracy), loss=float(loss)))

    # ---- the end -----------------------------------------------------------------------------------------
    def stop(self, reason: str = "the loop has asked for it") -> None:
        """Ends the run for all workers, each after the step it is at, where this worker decides (`decides`).

        Any other worker leaves after its step, and the run goes on until most workers have asked.
        """
        self._worker.end.asked = reason
        self._worker.tell(loop_messages.EndRun(reason=reason[:REASON_MAX]))

    @property
    def closed(self) -> bool:
        """Returns True once this worker takes no further part: the model has its final weights, unless it failed."""
        return self._worker.end.closed

    def close(self) -> None:
        """Makes the last exchange, takes no further part, and loads the final model, once nobody trains any more.

        Raises PeerLost or TimedOut when another party is missing.
        """
        worker, end = self._worker, self._worker.end
        if not end.closed:
            if not end.over:
                worker.guard.end_of_loop()
            evaluated = show_trained(self._own_optimizer, worker.model.flat.numbers)
            worker.guard.before_end()
            try:
                worker.steps.end()
            except PacelineError as error:
                self.abandon(f"worker {self.rank}: {error}", lost_another=isinstance(error, PeerLost))
                raise
            end.closed = True
            try:
                worker.lifecycle.leave(end.reason, drained=bool(end.notice))
            finally:
                self._schedules.end(in_full=end.reason in IN_FULL)
                worker.stop_watching()
                self._end_sharing()
            if self._constraint is not None:  # a mean of limited weights need not keep the limit
                limit(self._constraint, worker.model.flat.module)
            if evaluated:
                show_evaluated(self._own_optimizer)

    def abandon(self, cause: str, details: str = "", *, lost_another: bool = False) -> None:
        """Tells the coordinator that this worker failed; `lost_another`: since another party was lost."""
        session, end = self._worker.run.session, self._worker.end
        if not end.closed:
            end.closed = True
            self._schedules.end(in_full=False)
            self._worker.stop_watching()
            self._end_sharing()
            with contextlib.suppress(PacelineError):  # somebody may be there to hear it
                session.tell(control.Failed(cause=cause[:2000], details=details[-8000:], lost_another=lost_another))
            session.close()

    def _end_sharing(self) -> None:
        """Takes over the rates that were shared last; from now on the schedulers are the loop's own."""
        for plateau in self._plateaus:
            plateau.follow()
        self._values.ended = True

    def supersede(self) -> None:
        """Ends the part of a worker that is alone, since its process joins again, in a notebook perhaps.

        An interrupted step may be half done, so nothing is waited for, and the model keeps the weights that it has.
        """
        if not self._worker.end.closed:
            self._worker.end.superseded = True
            with contextlib.suppress(PacelineError):
                self._worker.model.flat.settle()
            self.abandon(SUPERSEDED)

    def end_part(self) -> None:
        """Ends this worker's part in order, since its process joins again. Raises PeerLost or TimedOut as `close`."""
        if not self.closed:  # the script has caught an exception, or has forgotten it
            self.close()
            self._worker.end.superseded = True

    def __enter__(self) -> Pace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if kind is None or ends_well(error):
            self.close()
        else:
            what = str(error) if isinstance(error, PacelineError) else f"{kind.__name__}: {error}"
            details = "" if isinstance(error, PacelineError) else "".join(traceback.format_exception(error))
            self.abandon(f"worker {self.rank}: {what}", details, lost_another=isinstance(error, PeerLost))
