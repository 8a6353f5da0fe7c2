"""One worker of a rule: makes the model, joins the run, and goes through its epochs as Theano-MPI does.

    python -m paceline.compat.theanompi.worker RULE MODELFILE MODELCLASS --scheme=... [--codec=...] [name=value ...]

`rules.py` starts it by `paceline launch`. BSP goes through the epochs in lock-step, each worker with its shard of each
epoch. Under EASGD and GOSGD each worker trains on all data at its own pace; the epoch is what all of them have trained
together. In both rank 0 validates the shared model, and writes `inforec/`.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paceline
from paceline.compat.theanompi.contract import check_model, compile_functions, model_class, module_of
from paceline.compat.theanompi.recorder import Recorder
from paceline.core.errors import PacelineError
from paceline.launch.local.environment import spec_from
from paceline.runtime.worker.pace import Pace

STOP = "stop"
WARM_UP_EPOCHS = 5
SNAPSHOT_EVERY = 5
SNAPSHOTS = Path("snapshots")


class ExchangingOptimizer:
    """Stands for the model's optimizer: its `step` is the exchange of the rule."""

    def __init__(self, pace: Pace, samples: int, recorder: Recorder) -> None:
        self._pace, self._samples, self._recorder = pace, samples, recorder

    def step(self) -> None:
        self._recorder.start()
        self._pace.step(self._samples)
        self._recorder.end("comm")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pace.optimizer, name)


class RuleWorker:
    """Goes through the epochs of one worker."""

    def __init__(self, rule: str, model: Any, pace: Pace, recorder: Recorder) -> None:
        self._rule, self._model, self._pace, self._recorder = rule, model, pace, recorder
        data = model.data
        self._samples = int(getattr(model, "batch_size", getattr(data, "batch_size", 1)))
        self._n_subb = int(getattr(model, "n_subb", 1))
        self._optimizer = model.optimizer
        model.optimizer = ExchangingOptimizer(pace, self._samples, recorder)
        self._count = 0

    def run(self) -> None:
        """Trains until the epochs or the run are over."""
        if self._rule == "BSP":
            self._in_lock_step()
        else:
            self._at_own_pace()
        self._model.cleanup()

    def _in_lock_step(self) -> None:
        for epoch in range(self._model.epoch, self._model.n_epochs):
            if self._pace.over:
                return
            self._model.epoch = epoch
            self._warm_up(epoch)
            self._recorder.start_epoch()
            for batch in range(self._model.data.n_batch_train):
                self._train(batch)
            self._end_epoch(epoch)

    def _at_own_pace(self) -> None:
        """All together train an epoch's batches before the next epoch begins."""
        size = self._model.data.n_batch_train * self._n_subb * self._samples
        epoch, batch = self._model.epoch, 0
        self._recorder.start_epoch()
        while not self._pace.over and epoch < self._model.n_epochs:
            self._train(batch % self._model.data.n_batch_train)
            batch += 1
            done = min(self._pace.total_samples // size, self._model.n_epochs)
            if done > epoch:
                self._end_epoch(done - 1)
                epoch = self._model.epoch = done
                self._recorder.start_epoch()
        if self._pace.rank == 0:
            self._pace.stop(f"{self._model.n_epochs} epochs")

    def _train(self, batch: int) -> None:
        """Makes the mini-batches of one batch of the data, each with its exchange."""
        for _ in range(self._n_subb):
            if self._pace.over:
                return
            before = self._pace.steps
            self._model.train_iter(self._count, self._recorder)
            if self._pace.steps == before:  # the model leaves the step to the rule
                self._model.optimizer.step()
                self._model.optimizer.zero_grad()
            self._count += 1
        self._recorder.print_train_info(self._count * self._pace.workers)

    def _end_epoch(self, epoch: int) -> None:
        model, recorder = self._model, self._recorder
        model.reset_iter("train")
        if self._pace.rank == 0 and not self._pace.over:
            self._validate()
            recorder.end_epoch(self._count, epoch, self._rate)
            recorder.save()
            if epoch % SNAPSHOT_EVERY == 0:
                self._save(epoch)
        model.adjust_hyperp(epoch)

    def _validate(self) -> None:
        """Validates the model of all workers, batch by batch."""
        with self._pace.shared_model():
            for batch in range(self._model.data.n_batch_val):
                if self._model.val_iter(batch, self._recorder) == STOP:
                    self._pace.stop("val_iter said so")
        self._model.reset_iter("val")
        if (means := self._recorder.print_val_info(self._count)) is not None:
            cost, error, _ = means
            accuracy = 0.0 if math.isnan(error) else min(1.0, max(0.0, 1.0 - error))
            self._pace.report(accuracy=accuracy, loss=cost)

    def _save(self, epoch: int) -> None:
        """Lets the model save itself, if it can."""
        if callable(save := getattr(self._model, "save", None)):
            SNAPSHOTS.mkdir(exist_ok=True)
            with self._pace.shared_model():
                save(str(SNAPSHOTS / f"{getattr(self._model, 'name', type(self._model).__name__)}_{epoch}"))

    @property
    def _rate(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    def _warm_up(self, epoch: int) -> None:
        """Brings the rate to `size` times its value over epochs 1 to 5: Goyal et al. 2017, as in Theano-MPI."""
        if 1 <= epoch <= WARM_UP_EPOCHS and getattr(self._model, "warm_up", True):
            for group in self._optimizer.param_groups:
                group["lr"] *= self._pace.workers ** (1 / WARM_UP_EPOCHS)


def _config(rule: str, modelclass: str, options: dict[str, str]) -> dict[str, Any]:
    """Returns what a model is made with. Under EASGD and GOSGD it is told rank 0 of 1, as in Theano-MPI: it trains on
    all data. `worker` is its rank in the run, by which it may shuffle."""
    spec = spec_from(os.environ)
    worker, workers, device = (spec.who.index, spec.workers, spec.device) if spec else (0, 1, "auto")
    rank, size = (worker, workers) if rule == "BSP" else (0, 1)
    own = {"verbose": worker == 0, "rank": rank, "size": size, "mname": modelclass, "worker": worker, "device": device}
    return {**options, **own}


def main(words: Sequence[str]) -> int:
    """Takes part as one worker; returns the exit code."""
    rule, modelfile, modelclass, *rest = words
    options = dict(word.removeprefix("--").split("=", 1) for word in rest)
    scheme, parameters = options.pop("scheme"), json.loads(options.pop("parameters", "{}"))
    codec, sync_type = options.pop("codec", "none"), options.pop("sync_type", "avg")
    model = model_class(modelfile, modelclass)(_config(rule, modelclass, options))
    check_model(model)
    compile_functions(model, sync_type)
    pace = paceline.join(module_of(model), model.optimizer, scheme=scheme, codec=codec, **parameters)
    RuleWorker(rule, model, pace, Recorder(pace.rank)).run()
    pace.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PacelineError as error:
        print(f"paceline: {error}", file=sys.stderr)
        sys.exit(1)
