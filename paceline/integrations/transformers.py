"""A Trainer of transformers whose processes are workers at their own speed.

    trainer = PacelineTrainer(model=model, args=args, train_dataset=dataset, scheme="asp")

and then `paceline launch -n 3 -s 1 python train.py`.

    the Trainer asks for      it gets
    the training loader       this worker's part of the batches
    an optimizer              `pace.optimizer` of the one it would have made
    a loss by tokens          a step that weighs as many samples as the batch has tokens
    a scheduler               the same; its steps go by the samples of all workers, or by what worker 0 measures
    an evaluation, a save     the model of all workers, while they train
    an early stop             the end of the run, for all workers

`num_train_epochs` counts passes of all workers together. `max_steps` counts the steps of one worker; of data with a
length the Trainer makes no more passes than one worker alone would for them. Worker 0 alone logs, evaluates and saves,
and so decides which model is the best. When `train` returns, the model is the final one, or with
`load_best_model_at_end` the best one, on all workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Iterator, Sized
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.training_args import ParallelMode

from paceline.core.errors import ConfigError
from paceline.integrations.place import rank_of_this_process
from paceline.integrations.worker_loader import WorkerLoader
from paceline.launch.join import join
from paceline.runtime.worker.pace import Pace

SILENT = {"logging_strategy": "no", "report_to": [], "disable_tqdm": True, "eval_on_start": False}
"""What workers other than 0 do not do from the beginning. Their strategies of evaluating and saving stay as given,
since callbacks check them; `_LeaveWithTheRun` lets nothing come of them."""
BEST = ("best_model_checkpoint", "best_metric", "best_global_step")
"""What the Trainer's state says of the best model; worker 0 shares it under this name."""
BEST_OF_ALL = "the Trainer's best model"


class PacelineTrainer(Trainer):
    """A Trainer that trains one model with others, each at its own speed."""

    def __init__(
        self, *positional: Any, scheme: str = "esync", join_options: dict[str, Any] | None = None, **named: Any
    ) -> None:
        """scheme: a name of `paceline schemes`. join_options: further arguments of `paceline.join`. All else is the
        Trainer's. Raises ConfigError for one of several processes that the Trainer itself has connected."""
        if rank_of_this_process() > 0 and isinstance(named.get("args"), TrainingArguments):
            named["args"] = dataclasses.replace(named["args"], **SILENT)
        super().__init__(*positional, **named)
        if self.args.parallel_mode is ParallelMode.DISTRIBUTED:
            raise ConfigError(
                "PacelineTrainer: the Trainer has connected the processes itself, by RANK and WORLD_SIZE: start the "
                "script with `paceline launch`, without --torch-distributed"
            )
        self._scheme, self._join_options = scheme, dict(join_options or {})
        self.pace: Pace | None = None
        self._lent = False  # has the model the weights of all workers?
        self.add_callback(_LeaveWithTheRun(self))

    def train(self, *positional: Any, **named: Any) -> Any:
        """Trains. Raises ConfigError where the Trainer is to resume: it knows one worker's part of the state."""
        if named.get("resume_from_checkpoint") or any(positional):
            raise ConfigError(
                "PacelineTrainer.train(resume_from_checkpoint=...): servers and other workers have state of their own; "
                "use paceline launch --checkpoint-every 60, and --resume auto"
            )
        try:
            output = super().train(**named)
            self._take_best()
            return output
        except BaseException as error:
            if self.pace is not None:
                self.pace.__exit__(type(error), error, None)
            raise

    def get_train_dataloader(self) -> Any:
        """Returns this worker's part of the loader that the Trainer would use."""
        return WorkerLoader(super().get_train_dataloader(), self.joined)

    def joined(self) -> Pace:
        """Returns the worker. Raises ConfigError before training has begun."""
        if self.pace is None:
            raise ConfigError("PacelineTrainer: the worker joins when train() makes the optimizer")
        return self.pace

    def create_optimizer(self, *positional: Any, **named: Any) -> torch.optim.Optimizer:
        """Makes the optimizer, and joins with it. Raises what `paceline.join` raises."""
        made = super().create_optimizer(*positional, **named)
        if self.pace is None:
            each_alone = self.args.max_steps > 0 and not isinstance(self.train_dataset, Sized)
            options = ({"schedule": "own"} if each_alone else {}) | self._join_options
            self.pace = join(self.model, made, self._scheme, **options)
            self.optimizer = self.pace.optimizer
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Makes the scheduler; one that goes by a measurement (`reduce_lr_on_plateau`) goes by those of worker 0."""
        made = super().create_scheduler(num_training_steps, optimizer)
        if self.pace is not None and isinstance(made, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.pace.plateau(made)
        return made

    def evaluate(self, *positional: Any, **named: Any) -> Any:
        """Evaluates the model of all workers; under local schemes this worker's own differs from it."""
        with self._model_of_all():
            return super().evaluate(*positional, **named)

    @contextlib.contextmanager
    def _model_of_all(self) -> Iterator[None]:
        """Lends the Trainer the model of all workers, once where blocks lie within one another."""
        if self.pace is None or self._lent:
            yield
            return
        with self.pace.shared_model():
            self._lent = True
            try:
                yield
            finally:
                self._lent = False

    def get_batch_samples(self, *positional: Any, **named: Any) -> tuple[list[Any], Any]:
        """Takes the batches of the next step, which weighs what its loss is divided by: tokens, of a language model.

        A run that a number of samples or epochs ends (`--samples`, `--epochs`) counts sequences, and so does one whose
        scheme says how large batches are.
        """
        batches, items = super().get_batch_samples(*positional, **named)
        pace = self.joined()
        by_items = isinstance(pace, Pace) and (
            pace.plan.samples or pace.plan.epochs or any(s.sizes_batches for s in pace.recipe.make_scheme().in_turn())
        )
        if items is not None and isinstance(pace, Pace) and not by_items:
            pace.optimizer.samples = max(1, int(torch.as_tensor(items).sum()))
        return batches, items

    # ---- the best model ----------------------------------------------------------------------------------
    def _maybe_log_save_evaluate(self, *positional: Any, **named: Any) -> None:
        """Evaluates and saves the same weights, those of all workers; worker 0 shares which model is the best."""
        if not (self.control.should_evaluate or self.control.should_save):
            super()._maybe_log_save_evaluate(*positional, **named)
            return
        with self._model_of_all():
            super()._maybe_log_save_evaluate(*positional, **named)
        self.joined().share(BEST_OF_ALL, {name: getattr(self.state, name) for name in BEST})

    def _load_best_model(self) -> None:
        """Leaves the run, which loads the final model, and then loads the best one."""
        self.joined().close()
        super()._load_best_model()

    def _take_best(self) -> None:
        """Takes over, on workers other than 0, which model is the best, and loads it if that is asked for."""
        best = self.joined().shared(BEST_OF_ALL)
        if best is None or self.joined().rank == 0:
            return
        for name, value in best.items():
            setattr(self.state, name, value)
        folder = self.state.best_model_checkpoint
        if self.args.load_best_model_at_end and folder is not None:
            if os.path.isdir(folder):
                super()._load_best_model()
            else:
                warnings.warn(
                    f"the best model is in {folder} of worker 0's host, and not here: this worker has the final one",
                    UserWarning,
                    stacklevel=3,
                )


class _LeaveWithTheRun(TrainerCallback):
    """Ends the Trainer's loop with the run, the run with a loop that is stopped early, and the worker's part with the
    loop. Workers other than 0 do not evaluate and save."""

    def __init__(self, trainer: PacelineTrainer) -> None:
        self._trainer = trainer
        self._steps = 0  # of the Trainer when the epoch began

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        state.is_world_process_zero = state.is_local_process_zero = self._trainer.joined().rank == 0
        return control

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        control.should_training_stop |= self._trainer.joined().over
        return self._settled(state, control)

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._steps = state.global_step

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        if state.global_step == self._steps:  # others had all batches of the epoch, after which the Trainer would stop
            control.should_training_stop = self._trainer.joined().over
            control.should_evaluate = control.should_save = False
        return self._settled(state, control)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        return self._settled(state, control)

    def _settled(self, state: TrainerState, control: TrainerControl) -> TrainerControl:
        """Returns what the Trainer is to do next. A stop before this worker's last step ends the run for all."""
        pace = self._trainer.joined()
        if pace.rank > 0:
            control.should_evaluate = control.should_save = control.should_log = False
        elif control.should_training_stop and state.global_step < state.max_steps and not pace.over:
            pace.stop("the Trainer was stopped early")
        return control

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        self._trainer.joined().close()
        return control
