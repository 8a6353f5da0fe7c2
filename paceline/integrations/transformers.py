"""A Trainer of transformers whose processes are workers at their own speed.

    trainer = PacelineTrainer(model=model, args=args, train_dataset=dataset, scheme="asp")

and then `paceline launch -n 3 -s 1 python train.py`.

    the Trainer asks for      it gets
    the training loader       this worker's part of the batches
    an optimizer              `pace.optimizer` of the one it would have made
    a scheduler               the same; its steps go by the samples of all workers
    an evaluation             the model of all workers, while they train

`num_train_epochs` counts passes of all workers together. `max_steps` counts the steps of one worker; of data with a
length the Trainer makes no more passes than one worker alone would for them. Worker 0 alone logs, evaluates and saves;
when `train` returns, the model is the final one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sized
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from paceline.core.errors import ConfigError
from paceline.integrations.place import rank_of_this_process
from paceline.integrations.worker_loader import WorkerLoader
from paceline.launch.join import join
from paceline.runtime.worker.pace import Pace

SILENT = {"save_strategy": "no", "logging_strategy": "no", "eval_strategy": "no", "report_to": [], "disable_tqdm": True}
"""What workers other than 0 do not do: one process logs, evaluates and saves."""


class PacelineTrainer(Trainer):
    """A Trainer that trains one model with others, each at its own speed."""

    def __init__(
        self, *positional: Any, scheme: str = "esync", join_options: dict[str, Any] | None = None, **named: Any
    ) -> None:
        """scheme: a name of `paceline schemes`. join_options: further arguments of `paceline.join`. All else is the
        Trainer's."""
        if rank_of_this_process() > 0 and isinstance(named.get("args"), TrainingArguments):
            named["args"] = dataclasses.replace(named["args"], **SILENT)
        super().__init__(*positional, **named)
        self._scheme, self._join_options = scheme, dict(join_options or {})
        self.pace: Pace | None = None
        self.add_callback(_LeaveWithTheRun(self))

    def train(self, *positional: Any, **named: Any) -> Any:
        """Trains. Raises ConfigError where the Trainer is to resume: it knows one worker's part of the state."""
        if named.get("resume_from_checkpoint") or any(positional):
            raise ConfigError(
                "PacelineTrainer.train(resume_from_checkpoint=...): servers and other workers have state of their own; "
                "use paceline launch --checkpoint-every 60, and --resume auto"
            )
        try:
            return super().train(**named)
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

    def evaluate(self, *positional: Any, **named: Any) -> Any:
        """Evaluates the model of all workers; under local schemes this worker's own differs from it."""
        if self.pace is None or self.pace.over:
            return super().evaluate(*positional, **named)
        with self.pace.shared_model():
            return super().evaluate(*positional, **named)


class _LeaveWithTheRun(TrainerCallback):
    """Ends the Trainer's loop with the run, and the worker's part with the loop."""

    def __init__(self, trainer: PacelineTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        state.is_world_process_zero = state.is_local_process_zero = self._trainer.joined().rank == 0
        return control

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        control.should_training_stop |= self._trainer.joined().over
        return control

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        self._trainer.joined().close()
        return control
