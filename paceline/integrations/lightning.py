"""A strategy for Lightning's Trainer, and one for Fabric: each process is a worker at its own speed.

    trainer = Trainer(strategy=PacelineStrategy(scheme="esync"), max_epochs=10)

and then `paceline launch -n 3 -s 1 python train.py`, in place of Lightning's own launchers.

    Lightning calls                    the strategy
    setup, in fit                      joins with the module and its optimizer, which it replaces by `pace.optimizer`
    process_dataloader, of training    gives this worker's part of the batches
    optimizer_step                     runs the closure, which calls backward, then `pace.step`; ends fit with the run
    on_validation_start, ..._end       lends the model of all workers
    lightning_module_state_dict        gives the weights of all workers, also for a checkpoint between validations
    on_train_end                       leaves the run; the module has the final model
    on_exception                       tells the others that this worker failed

`max_epochs` counts passes of all workers together, and schedulers by steps go by the samples of all; `max_steps` counts
the steps of one worker, and then so do they. Worker 0 alone logs, shows progress and saves checkpoints. What it
measures decides: EarlyStopping ends the run for all, ReduceLROnPlateau changes the rates of all, and all workers end
with the same best checkpoint (`lightning_decisions.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.fabric.strategies import SingleDeviceStrategy as FabricSingleDevice
from lightning.fabric.utilities.rank_zero import rank_zero_only as fabric_rank_zero_only
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader

from paceline.core.errors import ConfigError
from paceline.integrations.lightning_decisions import CallbackDecisions
from paceline.integrations.place import device_of_this_process, rank_of_this_process
from paceline.integrations.worker_loader import WorkerLoader, is_training_data
from paceline.launch.join import join
from paceline.runtime.worker.loop.shard import samples_in
from paceline.runtime.worker.pace import Pace


class PacelineStrategy(SingleDeviceStrategy):
    """A strategy of Lightning's Trainer under which workers need not be equally fast."""

    strategy_name = "paceline"

    def __init__(
        self,
        scheme: str = "esync",
        *,
        report: Mapping[str, str] | None = None,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> None:
        """scheme, options: as in `paceline.join`.

        report: which logged metrics reach the trace, the live page and `--target-accuracy` after each validation, for
        example {"accuracy": "val_acc", "loss": "val_loss"}. device: this worker's; by default what `paceline launch`
        says, otherwise the CPU.
        """
        super().__init__(device=device or device_of_this_process())
        self._scheme, self._options, self._report = scheme, options, dict(report or {})
        self.pace: Pace | None = None
        self._lent, self._is_lent = contextlib.ExitStack(), False
        self._samples = 0
        self._decisions = CallbackDecisions()
        self._take_rank(rank_of_this_process())

    def _take_rank(self, rank: int) -> None:
        """Makes this process the one that logs and saves if its rank is 0."""
        self.global_rank = rank
        rank_zero_only.rank = fabric_rank_zero_only.rank = rank

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    # ---- training ----------------------------------------------------------------------------------------
    def setup_optimizers(self, trainer: Trainer) -> None:
        """Joins the run. Raises ConfigError for a module with several optimizers, and what `paceline.join` raises."""
        super().setup_optimizers(trainer)
        made: list[torch.optim.Optimizer] = self._optimizers
        if len(made) != 1:
            raise ConfigError(
                f"PacelineStrategy: configure_optimizers returned {len(made)} optimizers; several models "
                'are trained by paceline.join({"D": ...}, {"D": ...}) in a loop of your own'
            )
        assert self.lightning_module is not None
        steps_of_one = {"schedule": "own"} if trainer.max_steps > 0 else {}
        self.pace = join(self.lightning_module, made[0], self._scheme, **(steps_of_one | self._options))
        self._take_rank(self.pace.rank)
        self.optimizers = [self.pace.optimizer]
        for config in self.lr_scheduler_configs:
            if isinstance(config.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                self.pace.plateau(config.scheduler)
                config.strict = False  # after an epoch without a batch, and so without a validation
        self._decisions.begin(trainer, self.pace)

    def process_dataloader(self, dataloader: object) -> object:
        """Returns this worker's part of a loader of training data; validation and test data stay whole."""
        module = self.lightning_module
        if module is None or not module.trainer.training or not isinstance(dataloader, DataLoader):
            return dataloader
        # Without a length Lightning reads one batch ahead, and so knows which one is the last before it validates.
        return WorkerLoader(dataloader, self._joined, sized=False)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Counts the samples of the next step, which are not those that were read last: Lightning reads ahead."""
        self._samples += samples_in(batch)

    def optimizer_step(
        self,
        optimizer: torch.optim.Optimizer,
        closure: Callable[[], Any],
        model: LightningModule | nn.Module | None = None,
        **kwargs: Any,
    ) -> Any:
        """Makes the step; once the run is over, `fit` ends after it."""
        pace = self._joined()
        pace.optimizer.samples, self._samples = self._samples, 0
        result = super().optimizer_step(optimizer, closure, model, **kwargs)
        if pace.over and self.lightning_module is not None:
            self.lightning_module.trainer.should_stop = True
        return result

    def on_train_end(self) -> None:
        """Leaves the run, once nobody trains any more; the module has the final model.

        A fit that was stopped early ends the run for all.
        """
        if self.pace is not None:
            self._decisions.share()
            assert self.lightning_module is not None
            if self.lightning_module.trainer.should_stop and self.pace.decides and not self.pace.over:
                self.pace.stop("Lightning's trainer was stopped early")
            self.pace.close()
            self._decisions.end()

    def on_exception(self, exception: BaseException) -> None:
        """Ends this worker's part: in order after Ctrl-C, otherwise as a failure that the run is told."""
        self._give_back()
        if self.pace is not None:
            self.pace.__exit__(type(exception), exception, None)

    # ---- validation --------------------------------------------------------------------------------------
    def on_validation_start(self) -> None:
        """Puts the model of all workers in the module, while training: under local schemes this worker's differs."""
        if self.pace is not None:
            self._decisions.take()
            self._lent.enter_context(self.pace.shared_model())
            self._is_lent = True

    def on_validation_end(self) -> None:
        """Puts this worker's own weights back, and reports what was measured."""
        self._give_back()
        module = self.lightning_module
        if self.pace is None or module is None or module.trainer.sanity_checking or not self.is_global_zero:
            return
        self._decisions.share()
        measured = module.trainer.callback_metrics
        told = {what: float(measured[name]) for what, name in self._report.items() if name in measured}
        if told:
            self.pace.report(**told)

    def _give_back(self) -> None:
        """Puts this worker's own weights in the module."""
        self._is_lent = False
        self._lent.close()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Returns the weights of all workers where this worker saves them while training."""
        if self.pace is None or self._is_lent or not self.is_global_zero:
            return super().lightning_module_state_dict()
        with self.pace.shared_model():
            return {name: each.clone() for name, each in super().lightning_module_state_dict().items()}

    def _joined(self) -> Pace:
        assert self.pace is not None, "training begins after setup_optimizers"
        return self.pace

    def setup(self, trainer: Trainer) -> None:
        """Sets up as on one device; a second `fit` joins again, where a run of one process allows it."""
        if trainer.state.fn == TrainerFn.FITTING:
            self.pace, self._samples = None, 0
        super().setup(trainer)


class FabricStrategy(FabricSingleDevice):
    """A strategy of Fabric: `Fabric(strategy=FabricStrategy("asp"))`, then `fabric.setup(model, optimizer)`.

    Of the loaders that `fabric.setup_dataloaders` is given, those that shuffle are shared among the workers; the others
    stay whole. At the end `fabric.strategy.pace.close()` leaves the run and loads the final model.
    """

    def __init__(self, scheme: str = "esync", *, device: str | torch.device | None = None, **options: Any) -> None:
        """scheme, options: as in `paceline.join`. device: as in `PacelineStrategy`."""
        super().__init__(device=device or device_of_this_process())
        self._scheme, self._options = scheme, options
        self._joined: Pace | None = None
        fabric_rank_zero_only.rank = rank_of_this_process()

    @property
    def pace(self) -> Pace:
        """Returns the worker. Raises ConfigError before `fabric.setup(model, optimizer)`."""
        if self._joined is None:
            raise ConfigError("FabricStrategy: call fabric.setup(model, optimizer) first")
        return self._joined

    @property
    def is_global_zero(self) -> bool:
        return (self._joined.rank if self._joined is not None else rank_of_this_process()) == 0

    def setup_module_and_optimizers(
        self, module: nn.Module, optimizers: list[torch.optim.Optimizer], scheduler: Any = None
    ) -> tuple[nn.Module, list[torch.optim.Optimizer], Any]:
        """Joins the run. Raises ConfigError for several optimizers, and what `paceline.join` raises."""
        if len(optimizers) != 1:
            raise ConfigError(f"FabricStrategy: one optimizer is shared, not {len(optimizers)}")
        self._joined = join(module, optimizers[0], self._scheme, **self._options)
        fabric_rank_zero_only.rank = self._joined.rank
        return module, [self._joined.optimizer], scheduler

    def process_dataloader(self, dataloader: Any) -> Any:
        """Returns this worker's part of a loader that shuffles or has a sampler; any other loader as it is."""
        return WorkerLoader(dataloader, lambda: self.pace) if is_training_data(dataloader) else dataloader
