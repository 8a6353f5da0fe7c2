"""Another rank of a worker of several devices: it obeys the first one, and offers its loop what the first one's has.

order          this rank
send           sends its blocks of the weights, gradients or rest
take           takes over its blocks
attach         attaches to memory of all ranks; write, read: copies its blocks to it, or from it
step           makes a step of its optimizer; clip, reset, zero_grad: likewise
give_state     sends what its optimizer remembers of its blocks; take_state: takes over such a state
give_draws     sends the states of its random generators; take_draws: sets them
keep, restore  keeps its weights while others are shown, and puts them back
dismissed      ends the script
batch, count, stepped, shown, done, closed, failed    what the loop waits for
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError, PeerLost
from paceline.engine.data.batches import MapStyle
from paceline.engine.data.dataset import Dataset
from paceline.engine.forward_samples import ForwardSamples, SamplesOf
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.mixed_precision import Precision
from paceline.engine.optim.optimizer_state import OptimizerState
from paceline.engine.optim.own_optimizer import UserSteps
from paceline.engine.sharded.local_parts import REST, WEIGHTS
from paceline.engine.sharded.local_state import LocalState
from paceline.runtime.worker.loop.loader import LoaderSettings, SharedLoader
from paceline.runtime.worker.loop.shard import StreamShard
from paceline.runtime.worker.ranks.first_rank import NO_SHARING, NO_STATE, counts_of
from paceline.runtime.worker.ranks.meeting import RankMeeting
from paceline.runtime.worker.ranks.rank_batches import check_loader, items_of, pair_of, part_of
from paceline.runtime.worker.schedules.loop_schedules import LoopProgress, LoopSchedules
from paceline.runtime.worker.schedules.sample_schedule import SampleSchedule
from paceline.runtime.worker.steps.drop_in import DropInOptimizer, drop_ins
from paceline.runtime.worker.steps.split_backward import LossOf, plain_backward


class Obedience:
    """Carries out the first rank's orders on this rank's part of the model."""

    def __init__(self, ranks: RankMeeting) -> None:
        self._link, self._parts = ranks.link, ranks.parts
        self._sends = {kind: of[ranks.link.rank] for kind, of in ranks.sends.items()}
        self._steps = UserSteps(self._parts.optimizer)
        self._memory = OptimizerState(self._parts.optimizer, self._parts.parameters)
        self._state = LocalState(self._parts)
        self._room: list[Tensor] = []  # the whole trained parameters in the memory of all ranks

    def until(self, *acts: str) -> dict[str, Any]:
        """Obeys until one of these orders comes, and returns it. Raises PeerLost where the first rank has failed, and
        SystemExit where it goes on alone."""
        while True:
            order = self._link.hear()
            if order["act"] in acts:
                return order
            if order["act"] == "dismissed":
                sys.exit(0)
            if order["act"] == "failed":
                raise PeerLost(f"the first rank of this worker has failed: {order['why']}")
            self._obey(order)

    def _obey(self, order: Mapping[str, Any]) -> None:
        """Carries out one order. Raises ValueError for one that is not expected here."""
        parts = self._parts
        match order["act"]:
            case "send":
                kind = order["kind"]
                self._link.give(parts.pack(kind, self._sends["rest" if kind == REST else "weights"]))
            case "take":
                kind, dtype = order["kind"], torch.uint8 if order["kind"] == REST else torch.float32
                receive = self._link.receive_same if order["same"] else self._link.receive
                parts.unpack(kind, receive(parts.length(kind), dtype))
            case "attach":
                memory = self._link.attach(order["path"], order["length"])
                self._room = [] if memory is None else parts.cut(memory)
            case "write":
                with torch.no_grad():
                    parts.write(order["kind"], self._sends[WEIGHTS], self._room)
                self._link.settle()
            case "read":
                with torch.no_grad():
                    parts.read(self._room)
                self._link.settle()
            case "zero_grad":
                parts.zero_grad()
            case "step":
                self._steps.step()
            case "clip":
                parts.clip(order["norm"])
            case "reset":
                self._memory.reset()
            case "give_state":
                state = self._state.take()
                for name in order["names"]:
                    self._link.give(self._state.owned(state, name, self._sends[WEIGHTS]))
            case "take_state":
                length = parts.length(WEIGHTS)
                vectors = {name: self._link.receive(length, torch.float32) for name in order["names"]}
                self._state.load({**order["numbers"], **vectors})
            case "give_draws":
                self._link.give(torch.cat(parts.generators()))
            case "take_draws":
                lengths = [len(state) for state in parts.generators()]
                parts.set_generators(torch.split(self._link.receive(order["length"], torch.uint8), lengths))
            case "is_zero":
                self._link.give(torch.tensor([float(parts.gradient_is_zero())]))
            case "keep":
                parts.keep()
            case "restore":
                parts.restore()
            case act:
                raise ValueError(f"order {act!r} is not expected here: all ranks have to call the same of pace")


def ignore_sigterm() -> bool:
    """Ignores SIGTERM from now on, unless the program has a handler: the first rank decides when the worker leaves.

    Returns True if it is ignored now.
    """
    main = threading.current_thread() is threading.main_thread()  # no other may ask for signals
    ignores = main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ignores:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return ignores


class OtherRankPace:
    """Is to the loop of another rank what a `Pace` is to the first one's."""

    def __init__(self, ranks: RankMeeting, samples_of: SamplesOf | None = None, *, own_schedule: bool = False) -> None:
        """Returns when training starts. `samples_of`: counts a call of the model."""
        self._ranks, self._orders = ranks, Obedience(ranks)
        begun = self._orders.until("begun")
        self.rank, self.workers = int(begun["rank"]), int(begun["workers"])
        self.draws_on = bool(begun["draws_on"])  # do this rank's random numbers go on where a checkpoint was made?
        self.local_rank, self.device = ranks.link.rank, ranks.parts.device
        self._told = self._orders.until("stepped")
        self._closed = self._wants_stop = self._passing = False
        self._schedules: list[SampleSchedule] = []
        self._ignores = ignore_sigterm()
        flat = cast(FlatModel, ranks.parts)  # of which nothing is asked but `has_gradient` and `parameters`
        self._calls = ForwardSamples(ranks.module, lambda: flat.has_gradient, samples_of=samples_of)
        self.optimizers = drop_ins(ranks.parts.optimizer, flat, self.step, lambda _skipped: self._calls.cleared())
        optimizers, progress = list(self.optimizers.values()), self._progress_of_loop
        self._schedules_of_loop = LoopSchedules(optimizers, progress, own=own_schedule, says=False)

    # ---- as of the last step -----------------------------------------------------------------------------
    @property
    def over(self) -> bool:
        """Returns True if the run is over, for this worker at least."""
        return bool(self._told["over"])

    @property
    def steps(self) -> int:
        """Returns the mini-batches done by this worker."""
        return int(self._told["steps"])

    @property
    def total_samples(self) -> int:
        """Returns the samples that all workers together have trained, as of the last step."""
        return int(self._told["total_samples"])

    @property
    def batch_size(self) -> int | None:
        """Returns the size of the worker's next mini-batch where the scheme says it."""
        size: int | None = self._told["batch_size"]
        return size

    @property
    def at_exchange(self) -> bool:
        """Returns True if the last step has ended an exchange."""
        return bool(self._told["at_exchange"])

    @property
    def optimizer(self) -> DropInOptimizer:
        """Returns the optimizer for frameworks that call its `step`."""
        return next(iter(self.optimizers.values()))

    # ---- the loop ----------------------------------------------------------------------------------------
    def batches(
        self, data: Dataset | MapStyle, batch_size: int, *, epochs: int | None = 1, partition: str = "auto"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields this rank's part of the worker's mini-batches, as (x, y) on its device."""
        for part in self._drawn():
            yield pair_of(data, part, self.device)

    def loader(
        self, dataset: Any, batch_size: int | None, *, epochs: int | None = 1, partition: str = "auto", **settings: Any
    ) -> SharedLoader:
        """Returns this rank's part of the worker's mini-batches, as a DataLoader gives them."""
        check_loader(dataset, batch_size, settings)
        collate = settings.pop("collate_fn", None)

        def begin(_anew: bool) -> Iterator[Any]:
            """Yields the batches of the next epochs."""
            for part in self._drawn():
                yield items_of(dataset, part, collate)

        return SharedLoader(dataset, batch_size, len(dataset), begin, LoaderSettings(collate_fn=collate, **settings))

    def shard(self, iterable: Any) -> StreamShard:
        """Returns this rank's part of what can only be iterated over."""
        place, places = self._ranks.place
        return StreamShard(iterable, self.rank + self.workers * place, self.workers * places)

    def _drawn(self) -> Iterator[list[int]]:
        """Yields this rank's part of the numbers of each mini-batch that the first rank draws."""
        while not self._closed and (length := int((drawn := self._orders.until("batch"))["length"])):
            numbers = self._ranks.link.receive_same(length, torch.int64)
            self._told["steps"] = drawn["steps"]
            self._passing = True
            try:
                yield part_of(numbers.tolist(), *self._ranks.place)
            finally:
                self._passing = False

    def backward(self, loss_of: LossOf, *batch: Any, precision: Precision | None = None) -> Tensor:
        """Makes it whole: parts would have to be those of all ranks."""
        return plain_backward(loss_of, *batch) if precision is None else precision.backward(loss_of, *batch)

    def step(self, model: str | int | None = None, samples: int | None = None) -> None:
        """Makes a step together with the other ranks. Raises PeerLost where one of them is lost."""
        if isinstance(model, int):
            samples = model
        if self._closed:
            return
        self._orders.until("count")
        self._ranks.link.together(counts_of(samples, self._calls.take(), stop=self._wants_stop))
        for schedule in self._schedules:
            schedule.follow()
        self._told = self._orders.until("stepped")

    def scheduler(self, scheduler: torch.optim.lr_scheduler.LRScheduler, *, every: int) -> SampleSchedule:
        """Returns `scheduler`, which goes by the samples of all workers from now on."""
        schedule = SampleSchedule(scheduler, every, lambda: self.total_samples, says=False)
        self._schedules.append(schedule)
        self._schedules_of_loop.add(schedule)
        return schedule

    def _progress_of_loop(self) -> LoopProgress:
        """Returns what the first rank has told after the last step, and whether this rank is within a pass."""
        told = LoopProgress(**self._told["loop"])
        return told if told.passing is None else dataclasses.replace(told, passing=self._passing)

    @property
    def decides(self) -> bool:
        """Returns False: the first rank decides."""
        return False

    def share(self, name: str, value: Any) -> None:
        """Raises ConfigError, as on the first rank."""
        raise ConfigError(NO_SHARING)

    def shared(self, name: str, default: Any = None) -> Any:
        """Raises ConfigError, as on the first rank."""
        raise ConfigError(NO_SHARING)

    def plateau(self, scheduler: torch.optim.lr_scheduler.ReduceLROnPlateau) -> NoReturn:
        """Raises ConfigError, as on the first rank."""
        raise ConfigError(NO_SHARING)

    # ---- the model ---------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def shared_model(self) -> Iterator[nn.Module]:
        """Lends the model with the weights of all workers, for an evaluation by all ranks together."""
        self._orders.until("shown")
        yield self._ranks.module
        self._orders.until("done")

    def state_dict(self) -> dict[str, Any]:
        """Raises ConfigError: there is no such state in a worker of several devices."""
        raise ConfigError(NO_STATE)

    def load_state_dict(self, state: Mapping[str, Any]) -> NoReturn:
        """Raises ConfigError, as `state_dict` does."""
        raise ConfigError(NO_STATE)

    def report(self, *, accuracy: float = 0.0, loss: float = 0.0) -> None:
        """Does nothing: the first rank reports."""

    # ---- the end -----------------------------------------------------------------------------------------
    def stop(self, reason: str = "") -> None:
        """Asks, with the next step, that the run ends for all workers."""
        self._wants_stop = True

    def close(self) -> None:
        """Takes no further part, and takes the final model."""
        if not self._closed:
            self._closed = True
            self._calls.end()
            self._schedules_of_loop.end(in_full=False)
            self._orders.until("closed")
            self._ranks.link.close()
            self._ranks.parts.zero_grad()
            self._heed_again()

    def abandon(self, cause: str, details: str = "", *, lost_another: bool = False) -> None:
        """Takes no further part; the first rank learns of it when this process ends."""
        self._closed = True
        self._calls.end()
        self._schedules_of_loop.end(in_full=False)
        self._heed_again()

    def _heed_again(self) -> None:
        """Lets SIGTERM end this process again."""
        if self._ignores and threading.current_thread() is threading.main_thread():
            self._ignores = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def __enter__(self) -> OtherRankPace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon(str(error))
