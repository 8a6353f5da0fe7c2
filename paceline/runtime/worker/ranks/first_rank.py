"""The first rank of a worker of several devices: it takes part in the run, and the others follow it.

    all ranks                        first rank                            other ranks
    for x, y in pace.batches(...)    draws sample numbers, tells them      hear them; each reads its own part
    backward                         (the ranks' own process group)
    pace.step()                      one step of a plain worker, whose     obey: send, take, step, zero_grad, ...
                                     model is a `GatheredModel`
                                     tells how far the run is              hear it

What a loop asks of `pace` between two steps (`over`, `total_samples`, ...) is as of the last step, the same on all
ranks.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.engine.accelerators import wait_for
from paceline.engine.data.batches import MapStyle
from paceline.engine.data.dataset import Dataset
from paceline.engine.forward_samples import SamplesOf
from paceline.engine.model.mixed_precision import Precision
from paceline.engine.sharded.gathered_model import GatheredModel
from paceline.live.control.session import Session
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.loop.loader import LoaderSettings, SharedLoader, begins_anew
from paceline.runtime.worker.loop.progress import ResumedProgress
from paceline.runtime.worker.loop.shard import StreamShard
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.ranks.local_group import LocalGroup
from paceline.runtime.worker.ranks.meeting import RankMeeting
from paceline.runtime.worker.ranks.rank_batches import SampleNumbers, check_loader, items_of, pair_of, part_of
from paceline.runtime.worker.schedules.loop_schedules import LoopProgress
from paceline.runtime.worker.steps.split_backward import LossOf, plain_backward

NO_SHARING = (
    "pace.share, pace.shared and pace.plateau in a worker of several devices: measure the same on all ranks and "
    "workers, and let each step its scheduler"
)
NO_STATE = "pace.state_dict() in a worker of several devices: use `paceline launch --checkpoint-every 60 --resume auto`"


@contextlib.contextmanager
def telling(link: LocalGroup) -> Iterator[None]:
    """Tells the other ranks of an error that ends this one, so that they end with the same cause."""
    try:
        yield
    except BaseException as error:
        link.fail(f"{type(error).__name__}: {error}")
        raise


def counts_of(given: int | None, counted: int | None, *, stop: bool = False) -> list[float]:
    """Returns what a rank tells the others with a step: samples that the loop gives, those of calls of the model, and
    whether the run is to end. -1: unknown."""
    return [-1 if given is None else given, -1 if counted is None else counted, stop]


class FirstRankPace(Pace):
    """Takes part in a run as the first rank of a worker."""

    def __init__(
        self,
        ranks: RankMeeting,
        whole: GatheredModel,
        recipe: Recipe,
        spec: ProcessSpec,
        session: Session,
        *,
        behind: ResumedProgress,
        samples_of: SamplesOf | None = None,
        own_schedule: bool = False,
    ) -> None:
        """Joins the run, and returns when training starts, on all ranks."""
        self._ranks, self._link = ranks, ranks.link
        self._told: dict[str, Any] = {}
        super().__init__(
            ranks.module,
            recipe,
            spec,
            session,
            optimizer=ranks.parts.optimizer,
            behind=behind,
            flat=whole,
            samples_of=samples_of,
            own_schedule=own_schedule,
        )
        self._whole = whole
        self.device, self.local_rank = ranks.parts.device, 0
        self._numbers: dict[int, SampleNumbers] = {}
        whole.share_rest()  # a worker that came late has other batch-norm statistics by now
        self._link.order("begun", rank=self.rank, workers=self.workers, draws_on=whole.draws_on)
        self._tell_progress()

    # ---- as of the last step -----------------------------------------------------------------------------
    def _tell_progress(self) -> None:
        """Tells the other ranks how far the run is."""
        self._told = {
            "over": super().over,
            "steps": super().steps,
            "total_samples": super().total_samples,
            "batch_size": super().batch_size,
            "at_exchange": super().at_exchange,
            "loop": dataclasses.asdict(super()._progress_of_loop()),
        }
        self._link.order("stepped", **self._told)

    @property
    def over(self) -> bool:
        return bool(self._told["over"])

    @property
    def total_samples(self) -> int:
        return int(self._told["total_samples"])

    @property
    def batch_size(self) -> int | None:
        size: int | None = self._told["batch_size"]
        return size

    # ---- the loop ----------------------------------------------------------------------------------------
    def batches(
        self, data: Dataset | MapStyle, batch_size: int, *, epochs: int | None = 1, partition: str = "auto"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        drawn = self._drawn(data, batch_size, epochs, partition, {}, anew=begins_anew())
        return (pair_of(data, part, self.device) for part in drawn)

    def loader(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        *,
        epochs: int | None = 1,
        partition: str = "auto",
        **settings: Any,
    ) -> SharedLoader:
        check_loader(dataset, batch_size, settings)
        size, collate = batch_size or 1, settings.pop("collate_fn", None)

        def begin(anew: bool) -> Iterator[Any]:
            """Yields the batches of the next epochs."""
            for part in self._drawn(dataset, size, epochs, partition, settings, anew=anew):
                yield items_of(dataset, part, collate)

        return SharedLoader(dataset, size, len(dataset), begin, LoaderSettings(collate_fn=collate, **settings))

    def shard(self, iterable: Any) -> StreamShard:
        place, places = self._ranks.place
        self._worker.feed.pass_of.divided = True
        return StreamShard(iterable, self.rank + self.workers * place, self.workers * places)

    def _drawn(
        self,
        data: Any,
        batch_size: int,
        epochs: int | None,
        partition: str,
        settings: dict[str, Any],
        *,
        anew: bool,
    ) -> Iterator[list[int]]:
        """Yields this rank's part of the numbers of each mini-batch, and tells the others all of them."""
        if self._worker.end.closed:
            return
        with telling(self._link):
            numbers = self._numbers.setdefault(id(data), SampleNumbers(data))
            told = super().loader(numbers, batch_size, epochs=epochs, partition=partition, collate_fn=list, **settings)
            source = told.begin(anew)
        # A DataLoader begins by drawing a seed for processes that it does not have here. The other ranks draw none, and
        # after a resume it would be drawn again, so that dropout would not go on where it was. A sampler may draw, too.
        first: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if "sampler" not in settings:
            first = torch.random.fork_rng(devices=[])
        while True:
            with telling(self._link), first:
                found = next(source, None)
                # The steps of earlier incarnations of the run are known once the first batch is drawn.
                self._link.order("batch", length=len(found or ()), steps=super().steps)
            first = contextlib.nullcontext()
            if found is None:
                return
            self._link.deliver_same(torch.tensor(found))
            yield part_of(found, *self._ranks.place)

    def backward(self, loss_of: LossOf, *batch: Any, precision: Precision | None = None) -> Tensor:
        """Makes it whole: parts would have to be those of all ranks."""
        return plain_backward(loss_of, *batch) if precision is None else precision.backward(loss_of, *batch)

    def step(self, model: str | int | None = None, samples: int | None = None) -> None:
        if isinstance(model, int):
            model, samples = None, model
        if self._worker.end.closed:
            return
        with telling(self._link):
            wait_for(self.device)  # the vector is in host memory, so the stopwatch does not know of it
            self._link.order("count")
            counts = self._link.together(counts_of(samples, self._worker.samples.take()))
            given, counted, stops = zip(*counts, strict=True)
            if any(stops):
                super().stop()
            self._hand_over(model, self._ranks.samples_of(given), self._ranks.samples_of(counted))
            self._tell_progress()

    def _progress_of_loop(self) -> LoopProgress:
        """Returns the same numbers on all ranks, and whether this rank is within a pass."""
        now = super()._progress_of_loop()
        return dataclasses.replace(LoopProgress(**self._told["loop"]), passing=now.passing) if self._told else now

    def share(self, name: str, value: Any) -> None:
        raise ConfigError(NO_SHARING)

    def shared(self, name: str, default: Any = None) -> Any:
        raise ConfigError(NO_SHARING)

    def plateau(self, scheduler: torch.optim.lr_scheduler.ReduceLROnPlateau) -> NoReturn:
        raise ConfigError(NO_SHARING)

    # ---- the model ---------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def shared_model(self) -> Iterator[nn.Module]:
        with contextlib.ExitStack() as stack:
            with telling(self._link):
                stack.enter_context(super().shared_model())
                self._whole.share_rest()
                self._link.order("shown")
            yield self._ranks.module
        self._link.order("done")

    def state_dict(self) -> dict[str, Any]:
        raise ConfigError(NO_STATE)

    def load_state_dict(self, state: Mapping[str, Any]) -> NoReturn:
        raise ConfigError(NO_STATE)

    # ---- the end -----------------------------------------------------------------------------------------
    def close(self) -> None:
        if not self._worker.end.closed:
            with telling(self._link):
                super().close()
                self._whole.share_rest()
                self._link.order("closed")
            self._link.close()

    def abandon(self, cause: str, details: str = "", *, lost_another: bool = False) -> None:
        end = self._worker.end
        if end.closed:
            return
        if self._link.lost:
            # The worker is lost, and not the run: the coordinator sees the connection end, as of one that was killed.
            end.closed = True
            self._schedules.end(in_full=False)
            self._worker.stop_watching()
            self._worker.run.session.close()
        else:
            super().abandon(cause, details, lost_another=lost_another)
            self._link.fail(cause)
