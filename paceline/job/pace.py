"""A worker's part in a run, seen from its own training loop.

The loop and the scheme are one machine seen from two sides: the scheme asks for a gradient (`Compute`) or for local
steps (`Train`), the loop's backward provides them, and `step()` resumes the scheme with the result and carries its
effects out until it asks again.
"""

from __future__ import annotations

import contextlib
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from paceline.core.effects import SERVERS, Compute, Computed, Mean, To, Train, Trained
from paceline.core.errors import PacelineError, Stopped
from paceline.core.role import Place
from paceline.core.trace import Span
from paceline.core.vector import cut
from paceline.engine.buffers import Buffers
from paceline.engine.data.batches import Batches, MapStyle
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.shares import make_shares
from paceline.engine.flatten import FlatModel
from paceline.engine.rules import LocalOptimizer, make_rule
from paceline.engine.vector import Flat
from paceline.job.collectives import Alone, CollectiveCarrier, collective_for
from paceline.job.recipe import Recipe
from paceline.job.seat import Seat
from paceline.job.server import INITIAL
from paceline.live import control, party
from paceline.live.session import Session


class Pace:
    """One worker. Iterate over `batches`, call backward, then `step`; `close` at the end, or use it as a context."""

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        seat: Seat,
        session: Session,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        measure: Callable[[], float] | None = None,
    ) -> None:
        """Joins the run; returns when training starts.

        `optimizer` does the local steps of schemes that train locally (one made from the recipe by default).
        `measure` returns the seconds of a step, for schemes and shares that go by speed; a speed of 0 is unknown.
        """
        self.rank = seat.who.index
        self.recipe = recipe
        self.device = torch.device(seat.device)
        self._seat = seat
        self._flat = FlatModel(model, self.device)
        self._buffers = Buffers(model, seat.buffers)
        self._local = LocalSteps(self._flat, recipe, optimizer)
        self._update = make_rule(recipe.optimizer, recipe.schedule)
        self._rate = Rate(optimizer)
        self._scheme = recipe.make_scheme()
        self._session = session
        self._node = self._session.node
        self._node.exhibits["buffers"] = self._buffers.snapshot
        self._streams: dict[int, Batches] = {}
        self._batch_samples = 0
        self._counts = Counts()
        self._closed = False
        self._join(measure)

    # ---- the user's side ---------------------------------------------------------------------------------
    @property
    def workers(self) -> int:
        return self.plan.workers

    @property
    def over(self) -> bool:
        """Is the run over, for this worker at least?"""
        return self._closed or self._session.over.is_set() or self._steps_done

    @property
    def steps(self) -> int:
        """Mini-batches done by this worker."""
        return self._counts.steps

    def batches(
        self, data: Dataset | MapStyle, batch_size: int, *, epochs: int | None = 1, shares: str = "uniform"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This worker's mini-batches of its share of `data`, on its device, until the epochs or the run are over.

        Every sample is in exactly one worker's share; shares are redrawn every epoch, and a later call goes on with
        the next epoch. `epochs` = None never ends by itself. Raises ConfigError for shares that cannot be made.
        """
        stream = self._streams.get(id(data))
        if stream is None:
            labels = data.y.cpu().numpy() if isinstance(data, Dataset) else None
            cutter = make_shares(shares, len(data), self.workers, labels, self.recipe.seed, self.plan.seconds_per_step)
            stream = self._streams[id(data)] = Batches(data, cutter, self.rank, batch_size, device=self.device)
        stream.epochs = None if epochs is None else stream.epoch + epochs
        while not self.over:
            batch = next(stream, None)
            if batch is None:
                return
            self._batch_samples = len(batch[1])
            yield batch

    def step(self, samples: int | None = None) -> None:
        """Hand over what backward has just computed, and carry on with whatever weights the scheme gives.

        `samples`: size of the batch, if it did not come from `batches`. Does nothing once the run is over.
        Raises PeerLost or TimedOut when another party is missing.
        """
        if self.over:
            return
        self._follow_rate()
        samples = samples if samples is not None else max(1, self._batch_samples)
        if isinstance(self._effect, Train):
            self._local.apply(self._samples_seen())
        result = self._result(samples, self._passed())
        if result is None:
            self._begin_step()
        else:
            self._go_on(result)

    def close(self) -> None:
        """Take no further part, and load the final model, once nobody trains any more."""
        if self._closed:
            return
        self._closed = True
        try:
            reason = self._session.stop_reason or ("steps" if self._steps_done else "every worker was done")
            self._session.leave(reason)
            if self._carrier is not None:
                self._carrier.drain()
            self._take_final_model(self._session.wait_for_finish().holder)
            self._session.done()
        finally:
            if self._carrier is not None:
                self._carrier.close()
            self._session.close()

    def __enter__(self) -> Pace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if kind is None:
            self.close()
        else:
            what = str(error) if isinstance(error, PacelineError) else f"{kind.__name__}: {error}"
            details = "" if isinstance(error, PacelineError) else "".join(traceback.format_exception(error))
            self.abandon(f"worker {self.rank}: {what}", details)

    def abandon(self, cause: str, details: str = "") -> None:
        """Tell the coordinator that this worker failed."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(PacelineError):  # somebody may be there to hear it
                self._session.tell(control.Failed(cause=cause[:2000], details=details[-8000:]))
            self._session.close()

    # ---- joining -----------------------------------------------------------------------------------------
    def _join(self, measure: Callable[[], float] | None) -> None:
        seat, session = self._seat, self._session
        session.connect([party.server(s) for s in range(seat.servers)])
        ready = control.Ready(
            length=len(self._flat),
            fingerprint=f"{self._flat.fingerprint()}/{self.recipe.digest()}",
            seconds_per_step=max(measure(), seat.step_seconds) if measure else seat.step_seconds,
            optimizer=self.recipe.to_json(),
        )
        session.tell(ready)
        self.plan = session.expect(control.Plan)
        self._carrier = self._make_carrier()
        everybody = tuple(range(self.plan.workers))
        shards = cut(len(self._flat), seat.servers) if seat.servers else (slice(0, len(self._flat)),)
        self._node.place(None, shards, self._carrier)
        # Worker 0's weights become everybody's: a mean in which nobody else counts.
        first = self._node.mean(Mean(self._flat.weights(), everybody, INITIAL, float(self.rank == 0)))
        place = Place(
            me=self.rank,
            workers=everybody,
            w=first.v,
            update=self._update,
            seed=self.recipe.seed,
            seconds_per_step=self.plan.seconds_per_step,
            note=session.note,
        )
        self._node.place(self._scheme.worker(seat.servers)(self._scheme, place), shards, self._carrier)
        self._node.times.reset()
        self._node.on_wait = self._waited
        session.tell(control.Prepared())
        session.expect(control.Go)
        session.begin(self._progress)
        self._go_on(None)

    def _make_carrier(self) -> CollectiveCarrier | Alone | None:
        """None where the servers carry means."""
        seat = self._seat
        backend = seat.mean
        if backend == "auto":
            backend = "servers" if seat.servers else collective_for(self.plan.devices)
        if backend == "servers":
            return None
        if self.plan.workers == 1:
            return Alone()
        return CollectiveCarrier(
            backend,
            self.rank,
            seat.workers,
            length=len(self._flat),
            rendezvous=seat.rendezvous,
            device=self.device,
            timeout_s=seat.timeout_s,
        )

    def _follow_rate(self) -> None:
        """A scheduler of the user's own changes the learning rate of the optimizer that only tells the recipe."""
        lr = self._rate.changed()
        if lr is not None:
            self._update.set_lr(lr)
            if self.rank == 0:
                self._session.tell_servers(self._seat.servers, control.Rate(lr=lr))

    # ---- one step ----------------------------------------------------------------------------------------
    def _go_on(self, result: Any) -> None:
        """Resume the scheme; what it asks for next is what the loop's next backward is for."""
        try:
            self._effect: Any = self._node.advance(result)
        except Stopped:
            return
        if result is not None and not self._goes_on_alone(result):
            self._counts.exchanges += 1
        match self._effect:
            case Compute():
                self._flat.load(cast(Flat, self._effect.w))
            case Train():
                self._flat.load(cast(Flat, self._effect.x))
                self._local.begin(self._effect.steps)
        self._begin_step()

    def _goes_on_alone(self, result: Any) -> bool:
        """Is the next local step to start just where the last one ended, so that nothing was exchanged?"""
        return isinstance(result, Trained) and isinstance(self._effect, Train) and self._effect.x is result.x

    def _begin_step(self) -> None:
        self._flat.zero_grad()
        self._step_began = time.monotonic()

    def _passed(self) -> float:
        """Seconds of the step that has just ended, drawn out to what is emulated."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        passed = time.monotonic() - self._step_began
        if passed < self._seat.step_seconds:
            self._session.over.wait(self._seat.step_seconds - passed)
            passed = time.monotonic() - self._step_began
        return passed

    def _result(self, samples: int, seconds: float) -> Computed | Trained | None:
        """What the scheme asked for; None while local steps are left to do."""
        match self._effect:
            case Compute():
                result: Computed | Trained | None = Computed(self._flat.gradient(), samples, seconds)
            case Train():
                result = self._local.add(samples, seconds)
        self._counts.add(samples, seconds)
        self._session.note(
            Span(at=self._node.now(), rank=self.rank, activity="computing", seconds=seconds, steps=1, samples=samples)
        )
        return result

    def _samples_seen(self) -> int:
        """By all workers, as far as this one knows: the coordinator's last total, and what came here since."""
        return self._session.total_samples + self._counts.samples - self._counts.reported

    @property
    def _steps_done(self) -> bool:
        return 0 < self._seat.steps <= self._counts.steps

    def _take_final_model(self, holder: int) -> None:
        """From the servers, or from the worker that trained last; batch-norm statistics are that worker's."""
        on_servers = self._scheme.model_on_servers(self._seat.servers)
        if self.rank != holder and (len(self._buffers) or not on_servers):
            self._session.reach(party.worker(holder))
            if len(self._buffers):
                self._buffers.load(self._node.peek(holder, "buffers"))
        source: To | None = SERVERS if on_servers else holder if self.rank != holder else None
        self._flat.load(self._node.model() if source is None else self._node.peek(source, "weights"))
        self._flat.zero_grad()

    # ---- reports -----------------------------------------------------------------------------------------
    def _waited(self, waiting: float, communicating: float) -> None:
        at = self._node.now()
        self._session.note(Span(at=at, rank=self.rank, activity="waiting", seconds=waiting))
        self._session.note(Span(at=at, rank=self.rank, activity="communicating", seconds=communicating))

    def _progress(self) -> control.Progress:
        more = self._carrier.traffic() if self._carrier is not None else (0, 0)
        up, down = map(sum, zip(self._session.traffic(), more, strict=True))
        counts = self._counts
        samples = counts.reported = counts.samples  # read once: the loop goes on meanwhile
        return control.Progress(
            steps=counts.steps,
            samples=samples,
            exchanges=counts.exchanges,
            seconds_computing=counts.seconds,
            seconds_waiting=self._node.times.waiting,
            seconds_communicating=self._node.times.communicating,
            bytes_up=up,
            bytes_down=down,
        )


class Counts:
    """What this worker has done; `reported`: samples the coordinator has heard of."""

    def __init__(self) -> None:
        self.steps = self.samples = self.exchanges = self.reported = 0
        self.seconds = 0.0

    def add(self, samples: int, seconds: float) -> None:
        self.steps += 1
        self.samples += samples
        self.seconds += seconds


class Rate:
    """Notices that somebody has changed the learning rate of `optimizer`."""

    def __init__(self, optimizer: torch.optim.Optimizer | None) -> None:
        self._group: dict[str, Any] = optimizer.param_groups[0] if optimizer else {"lr": None}
        self._last = self._group["lr"]

    def changed(self) -> float | None:
        """The new rate, once."""
        if self._group["lr"] == self._last:
            return None
        self._last = self._group["lr"]
        return float(self._group["lr"])


class LocalSteps:
    """The local optimizer of schemes that train between exchanges."""

    def __init__(self, flat: FlatModel, recipe: Recipe, optimizer: torch.optim.Optimizer | None) -> None:
        self._flat, self._recipe, self._given = flat, recipe, optimizer
        self._made: LocalOptimizer | None = None
        self._left = self._samples = 0
        self._seconds = 0.0

    def begin(self, steps: int) -> None:
        self._left, self._samples, self._seconds = steps, 0, 0.0

    def apply(self, samples_seen: int) -> None:
        """One update of the model, in place."""
        if self._given is not None:
            self._given.step()
            return
        if self._made is None:
            self._made = LocalOptimizer(self._flat, self._recipe.optimizer, self._recipe.schedule)
        self._made.step(samples_seen)

    def add(self, samples: int, seconds: float) -> Trained | None:
        """Count a step; the result when it was the last of those asked for."""
        self._left -= 1
        self._samples += samples
        self._seconds += seconds
        return None if self._left else Trained(self._flat.weights(), self._samples, self._seconds)


def measured_step(step: Callable[[], None], repeats: int = 3) -> float:
    """Median seconds of `step` after one call to warm up."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])
