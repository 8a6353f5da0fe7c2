"""An optimizer of Keras 3, on the torch backend, that makes `fit` a worker at its own speed.

    optimizer = PacelineOptimizer(torch.optim.SGD, learning_rate=0.1, momentum=0.9, scheme="asp")
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    optimizer.fit(model, loader, epochs=3)          in place of model.fit(loader, epochs=3)

and then `paceline launch -n 3 -s 1 python train.py`, with KERAS_BACKEND=torch. `loader` is a torch DataLoader.

    Keras asks for         it gets
    an update              a step of `pace.optimizer`, made of torch's optimizer that was named
    training batches       this worker's part of them, without a length: nobody knows it beforehand
    validation batches     all of them, on each worker

`epochs` counts passes of all workers together. What callbacks set as `optimizer.learning_rate` holds from the next step
on. Worker 0 alone prints. When `fit` returns, the model is the final one of all workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import torch
from torch.utils.data import DataLoader, IterableDataset

from paceline.core.errors import ConfigError
from paceline.integrations.worker_loader import WorkerLoader
from paceline.launch.join import join
from paceline.runtime.worker.pace import Pace


class PacelineOptimizer(keras.optimizers.Optimizer):
    """Stands for an optimizer of torch where Keras wants one of its own."""

    def __init__(
        self,
        optimizer: Callable[..., torch.optim.Optimizer],
        *,
        learning_rate: float,
        scheme: str = "esync",
        join_options: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """optimizer: a class of torch.optim, or what else takes parameters, `lr` and `settings`. scheme: a name of
        `paceline schemes`. join_options: further arguments of `paceline.join`. Raises ConfigError for another backend.
        """
        if keras.backend.backend() != "torch":
            raise ConfigError(
                f"Keras computes with {keras.backend.backend()}: set KERAS_BACKEND=torch before the import"
            )
        super().__init__(learning_rate=learning_rate, name="paceline")
        self._torch_optimizer, self._settings = optimizer, settings
        self._scheme, self._join_options = scheme, dict(join_options or {})
        self._pace: Pace | None = None

    @property
    def pace(self) -> Pace:
        """Returns the worker. Raises ConfigError before `fit`."""
        if self._pace is None:
            raise ConfigError(
                "PacelineOptimizer: train with optimizer.fit(model, loader, ...), not model.fit(loader, ...)"
            )
        return self._pace

    def fit(self, model: keras.Model, loader: DataLoader[Any], **named: Any) -> keras.callbacks.History:
        """Trains as `model.fit(loader, **named)` does, together with the other workers; returns Keras' history.

        Raises ConfigError for a model that was compiled with another optimizer or is not built, for data that is no
        DataLoader, and what `paceline.join` raises.
        """
        if model.optimizer is not self:
            raise ConfigError("PacelineOptimizer.fit: compile the model with this optimizer first")
        if not model.built:
            raise ConfigError("PacelineOptimizer.fit: the model has no weights yet; give it an Input, or call build()")
        if not isinstance(loader, DataLoader):
            raise ConfigError(
                "PacelineOptimizer.fit: training data come as a torch DataLoader, so that workers share them"
            )
        parameters = [variable.value for variable in model.trainable_weights]
        own = self._torch_optimizer(parameters, lr=self._rate(), **self._settings)
        with join(model, own, self._scheme, **self._join_options) as self._pace:
            if self._pace.rank > 0:
                named["verbose"] = 0
            return model.fit(_SharedDataLoader(loader, self._pace), **named)

    def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> None:
        """Makes a step; torch has left the gradients at the parameters."""
        for group in self.pace.optimizer.param_groups:
            group["lr"] = self._rate()
        self.pace.optimizer.step()
        self.iterations.assign_add(1)

    def _rate(self) -> float:
        """Returns the learning rate of the next step."""
        return float(self._get_current_learning_rate())


class _SharedDataLoader(DataLoader[Any]):
    """A DataLoader, as Keras asks for that class, whose batches are this worker's part of another one's.

    Before the first epoch Keras draws a batch only to see its shapes, and begins anew. That batch is not lost: one
    that no step followed comes again.
    """

    def __init__(self, original: DataLoader[Any], pace: Pace) -> None:
        super().__init__(_Unsized(), batch_size=original.batch_size)
        self._pace = pace
        self._shared = WorkerLoader(original, lambda: pace, sized=False)
        self._batches: Iterator[Any] = iter(())
        self._drawn: list[Any] = []
        self._steps = -1  # of this worker when the last batch was drawn

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._drawn and self._pace.steps == self._steps:
            yield self._drawn[0]
        else:
            self._batches = iter(self._shared)
        for batch in self._batches:
            self._drawn, self._steps = [batch], self._pace.steps
            yield batch


class _Unsized(IterableDataset[Any]):
    """A data set without a length: Keras then takes batches until there are no more."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())
