"""timm's `train.py` as a worker at its own speed: what it has made is handed over, and comes back shared.

    worker = TimmWorker(model, optimizer, loader_train, args, scheme="esync")      # before the saver is made
    optimizer, loader_train = worker.optimizer, worker.loader
    lr_scheduler = worker.scheduler(lr_scheduler)                                  # once the schedule is made
    worker.close()                                                                 # after the last epoch

and then `paceline launch -n 3 -s 1 python train.py ...`, in place of `distributed_train.sh`.

    of train.py                        here
    the training loader                this worker's part of the batches, normalised, erased and mixed up as before
    epochs, `lr_scheduler.step`        passes of all workers together
    `lr_scheduler.step_update`         counts updates by the samples of all workers
    `args.rank`                        the worker's number: worker 0 alone logs and saves
    clipping, scaler, `model_ema`      as alone, of this worker's own model

What does not fill a batch at the end of a pass is left out, as timm does. Where gradients are accumulated, those of an
incomplete group at the end of a worker's pass are dropped.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from timm.data.loader import MultiEpochsDataLoader, PrefetchLoader
from torch import nn
from torch.utils.data import DataLoader

from paceline.core.errors import ConfigError
from paceline.integrations.worker_loader import WorkerLoader
from paceline.launch.join import join
from paceline.runtime.worker.pace import Pace


class TimmWorker:
    """Joins a run with timm's model, optimizer and training loader.

    pace: the worker; optimizer, loader: to be used in place of the given ones.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: Any,
        args: Any = None,
        *,
        scheme: str = "esync",
        join_options: dict[str, Any] | None = None,
    ) -> None:
        """args: of `train.py`; its `rank` is set, and its `grad_accum_steps` read. scheme: a name of `paceline
        schemes`. join_options: further arguments of `paceline.join`. Raises ConfigError for a loader whose batches
        cannot be shared, and what `paceline.join` raises."""
        if getattr(args, "distributed", False):
            raise ConfigError(
                "TimmWorker: timm has connected its processes itself; start train.py with `paceline launch`, and not "
                "with distributed_train.sh or torchrun"
            )
        self.loader: Any = _TimmLoader(loader, lambda: self.pace)
        accumulated = int(getattr(args, "grad_accum_steps", 1))
        self._updates, self._samples = -(-len(self.loader) // accumulated), len(self.loader) * self.loader.batch_size
        self.pace: Pace = join(model, optimizer, scheme, **(join_options or {}))
        self.optimizer = self.pace.optimizer
        if args is not None:
            args.rank = self.pace.rank

    def scheduler(self, scheduler: Any) -> Any:
        """Returns a scheduler of timm that counts updates by the samples of all workers; None for None."""
        if scheduler is None:
            return None
        return _UpdatesOfAll(scheduler, lambda: self.pace.total_samples * self._updates // self._samples)

    def shared_model(self) -> contextlib.AbstractContextManager[nn.Module]:
        """Lends the model the weights of all workers, for a validation while they train."""
        return self.pace.shared_model()

    def close(self) -> None:
        """Leaves the run, once nobody trains any more, and loads the final model."""
        self.pace.close()


class _TimmLoader(WorkerLoader):
    """Yields this worker's batches as timm's loader would.

    timm's prefetcher gets them one by one: it would read one ahead, which then counted as trained.
    """

    def __init__(self, original: Any, joined: Callable[[], Pace]) -> None:
        self._prefetcher = copy.copy(original) if isinstance(original, PrefetchLoader) else None
        loader = original if self._prefetcher is None else original.loader
        if isinstance(loader, MultiEpochsDataLoader):
            raise ConfigError("TimmWorker: leave --use-multi-epochs-loader out, as a worker's batches differ by epoch")
        if not isinstance(loader, DataLoader) or loader.batch_size is None:
            raise ConfigError(
                "TimmWorker: batches of several sizes cannot be shared; leave --naflex-loader and sizes that change out"
            )
        super().__init__(loader, joined)

    def __iter__(self) -> Iterator[Any]:
        if self._prefetcher is None:
            yield from super().__iter__()
            return
        for batch in super().__iter__():
            self._prefetcher.loader = [batch]
            yield from self._prefetcher

    @property
    def mixup_enabled(self) -> bool:
        """Returns True if batches are mixed up where they are made."""
        return bool(getattr(self._collate, "mixup_enabled", False))

    @mixup_enabled.setter
    def mixup_enabled(self, enabled: bool) -> None:
        if hasattr(self._collate, "mixup_enabled"):
            self._collate.mixup_enabled = enabled

    @property
    def _collate(self) -> Any:
        """Returns what timm makes batches with."""
        return self.original.collate_fn


class _UpdatesOfAll:
    """A scheduler of timm for which the updates of all workers count, and not those of this one."""

    def __init__(self, scheduler: Any, updates: Callable[[], int]) -> None:
        self._scheduler, self._updates = scheduler, updates

    def step_update(self, num_updates: int, metric: Any = None) -> None:
        """Sets the rate by how many updates all workers have made; `num_updates`, this worker's own, are not used."""
        self._scheduler.step_update(self._updates(), metric)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_scheduler"], name)
