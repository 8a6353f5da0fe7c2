"""An Accelerator whose processes are workers at their own speed.

    accelerator = PacelineAccelerator(scheme="asp")
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    ...
    accelerator.end_training()

and then `paceline launch -n 3 -s 1 python train.py`, in place of `accelerate launch`.

    `prepare` is given     it returns
    model and optimizer    the model, and `pace.optimizer`, wrapped as Accelerate wraps any optimizer
    a shuffling loader,
      or with a sampler    this worker's part of its batches, moved to the device
    a loader of a stream   this worker's part while the model is in training mode, all of it otherwise
    any other loader       what Accelerate makes of it: each worker has all of it
    a scheduler            what Accelerate makes of it; its steps go by the samples of all workers
    a ReduceLROnPlateau    the same, by what the worker measures that decides (`pace.plateau`)

One call has model and optimizer together. Accumulation, clipping and mixed precision are Accelerate's. Epochs are
passes of all workers together. `is_main_process` is True for worker 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import send_to_device
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from paceline.core.errors import ConfigError
from paceline.integrations.place import rank_of_this_process
from paceline.integrations.worker_loader import WorkerLoader, is_training_data
from paceline.launch.join import join
from paceline.runtime.worker.pace import Pace


class PacelineAccelerator(Accelerator):
    """An Accelerator of one process that trains one model with others, each at its own speed."""

    def __init__(
        self, *positional: Any, scheme: str = "esync", join_options: dict[str, Any] | None = None, **named: Any
    ) -> None:
        """scheme: a name of `paceline schemes`. join_options: further arguments of `paceline.join`. All else is the
        Accelerator's. Raises ConfigError for one of several processes that Accelerate itself has connected."""
        super().__init__(*positional, **named)
        if self.num_processes > 1:
            raise ConfigError(
                "PacelineAccelerator: start the script with `paceline launch`, without --torch-distributed, not with "
                "`accelerate launch`"
            )
        self._scheme, self._join_options = scheme, dict(join_options or {})
        self._pace: Pace | None = None
        self._model: nn.Module | None = None
        self._take_rank(rank_of_this_process())

    @property
    def pace(self) -> Pace:
        """Returns the worker. Raises ConfigError before `prepare` was given a model and its optimizer."""
        if self._pace is None:
            raise ConfigError("PacelineAccelerator: call prepare(model, optimizer, ...) first")
        return self._pace

    @property
    def is_training(self) -> bool:
        """Returns True while the model that is trained is in training mode."""
        return self._model is not None and self._model.training

    def _take_rank(self, rank: int) -> None:
        """Tells Accelerate which process this is: worker 0 alone prints, tracks and saves."""
        for state in (PartialState(), AcceleratorState()):
            state.process_index = state.local_process_index = rank

    def prepare(self, *objects: Any, **named: Any) -> Any:
        """Joins with the model and optimizer among `objects`; returns all of them, in their order.

        What an earlier call returned may be given again, as by a cell of a notebook that is run again. Raises
        ConfigError for several optimizers, or one without its model, and what `paceline.join` raises.
        """
        objects = tuple(map(_unwrapped, objects))
        optimizers = [each for each in objects if isinstance(each, torch.optim.Optimizer)]
        models = [each for each in objects if isinstance(each, nn.Module)]
        if not optimizers and self._pace is None:
            return super().prepare(*objects, **named)
        if optimizers and (len(optimizers) > 1 or len(models) != 1):
            raise ConfigError(
                "PacelineAccelerator.prepare: give one model and its optimizer in one call; several models are trained "
                'by paceline.join({"D": ...}, {"D": ...})'
            )
        ready = {id(model): super(PacelineAccelerator, self).prepare(model) for model in models}
        if optimizers:
            self._model = ready[id(models[0])]
            self._pace = join(self._model, optimizers[0], self._scheme, **self._join_options)
            self._take_rank(self._pace.rank)
            # Its state is where the model is; placing it would load a state, which servers do not take while training.
            ready[id(optimizers[0])] = self.prepare_optimizer(self._pace.optimizer, device_placement=False)
        given = [ready[id(each)] if id(each) in ready else self._prepared(each) for each in objects]
        return given[0] if len(given) == 1 else tuple(given)

    def _prepared(self, given: Any) -> Any:
        """Returns a loader or anything else for this worker."""
        if isinstance(given, DataLoader) and (is_training_data(given) or isinstance(given.dataset, IterableDataset)):
            return _OnDevice(given, self)
        if isinstance(given, torch.optim.lr_scheduler.ReduceLROnPlateau):
            return self.pace.plateau(given)
        return super().prepare(given)

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        """Returns a loader without its first batches, which all workers together have trained."""
        if isinstance(dataloader, WorkerLoader):
            return _OnDevice(dataloader.without_first(num_batches), self)
        return super().skip_first_batches(dataloader, num_batches)

    def end_training(self) -> None:
        """Leaves the run, once nobody trains any more, and loads the final model; then ends Accelerate's trackers."""
        if self._pace is not None:
            self._pace.close()
        super().end_training()


class _OnDevice(WorkerLoader):
    """Moves each batch to the worker's device, as Accelerate's loaders do."""

    def __init__(self, original: DataLoader[Any], accelerator: PacelineAccelerator) -> None:
        super().__init__(original, lambda: accelerator.pace)
        self._device, self._accelerator = accelerator.device, accelerator

    def __iter__(self) -> Iterator[Any]:
        is_shared = not isinstance(self.original.dataset, IterableDataset) or self._accelerator.is_training
        batches = super().__iter__() if is_shared else iter(self.original)
        return (send_to_device(batch, self._device) for batch in batches)


def _unwrapped(given: Any) -> Any:
    """Returns what an earlier `prepare` was given for `given`."""
    if isinstance(given, AcceleratedOptimizer):
        return given.optimizer
    return given.original if isinstance(given, WorkerLoader) else given
