"""A callback of skorch that makes `fit` a worker at its own speed.

    net = NeuralNetClassifier(Network, optimizer=torch.optim.SGD, lr=0.1, callbacks=[PacelineCallback("asp")])
    net.fit(X, y)

and then `paceline launch -n 3 -s 1 python train.py`.

    skorch asks for        it gets
    the optimizer          `pace.optimizer` of its own one
    training batches       this worker's part of them
    validation batches     all of them, on each worker

`max_epochs` counts passes of all workers together. Worker 0 alone prints. When `fit` returns, the module is the final
model. Each `fit` or `partial_fit` is a run of its own, so one process calls it once under `paceline launch`. Schedulers
of skorch (`LRScheduler`) stand behind this callback in the list; by batches they go by the samples of all workers.
"""

from __future__ import annotations

from typing import Any

from skorch.callbacks import Callback

from paceline.integrations.worker_loader import WorkerLoader
from paceline.launch.join import join
from paceline.runtime.worker.pace import Pace


class PacelineCallback(Callback):
    """Joins when training begins, and leaves when it ends."""

    def __init__(self, scheme: str = "esync", join_options: dict[str, Any] | None = None) -> None:
        """scheme: a name of `paceline schemes`. join_options: further arguments of `paceline.join`."""
        # scikit-learn clones an object by its attributes, which therefore keep what was given.
        self.scheme, self.join_options = scheme, join_options

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **named: Any) -> None:
        """Joins with the module and the optimizer. Raises what `paceline.join` raises."""
        pace = join(net.module_, net.optimizer_, self.scheme, **(self.join_options or {}))
        self.pace_, self._original = pace, (net.optimizer_, net.iterator_train, net.verbose)
        net.optimizer_ = pace.optimizer
        net.iterator_train = _SharedBatches(net.iterator_train, pace)
        if pace.rank > 0:
            net.verbose = 0

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **named: Any) -> None:
        """Leaves the run once nobody trains any more, and loads the final model."""
        self.pace_.close()
        net.optimizer_, net.iterator_train, net.verbose = self._original


class _SharedBatches:
    """Stands where skorch has the class of its training loader."""

    def __init__(self, loader: Any, pace: Pace) -> None:
        self._loader, self._pace = loader, pace

    def __call__(self, dataset: Any, **settings: Any) -> WorkerLoader:
        return WorkerLoader(self._loader(dataset, **settings), lambda: self._pace)
