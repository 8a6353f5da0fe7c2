"""Base classes of models and data after Theano-MPI's contract (`contract.py`), for networks of torch.

A model of one's own overrides numbers and methods:

    class Mine(TorchModel):
        n_epochs, batch_size, learning_rate, lr_step = 70, 128, 0.01, (20, 40, 60)

        def make_module(self):
            return my_network()

        def make_data(self):
            return TensorData(x, y, x_val, y_val, self.batch_size, self.rank, self.size)

The command may set `epochs`, `batch_size`, `data`, `data_dir`, `resize` and `width`; data and network are then those of
`paceline train`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline import config as configuration
from paceline.compat.theanompi.recorder import Recorder
from paceline.engine.accelerators import count_of
from paceline.engine.data.dataset import Splits
from paceline.runtime.evaluator.evaluator import save_model
from paceline.runtime.spec.devices import device_for
from paceline.runtime.worker.train_loop import build_model, load_data

TOP = 5


class TensorData:
    """A DataClass whose samples are in memory. Each rank trains on every size-th batch of a common order.

    The last batches are repeated, so that all ranks have as many.
    """

    def __init__(self, splits: Splits, batch_size: int, rank: int, size: int) -> None:
        self._splits, self.batch_size, self._rank, self._size = splits, batch_size, rank, size
        self._order = torch.arange(len(splits.train))
        batches = max(1, len(splits.train) // batch_size)
        self.n_batch_train = -(-batches // size)
        self.n_batch_val = -(-len(splits.test) // batch_size)

    def shuffle_data(self, mode: str, common_seed: int) -> None:
        """Draws a new order of the training samples; ranks with one seed draw the same."""
        if mode == "train":
            self._order = torch.randperm(len(self._order), generator=torch.Generator().manual_seed(common_seed))

    def train_batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Returns batch `number` of this rank: samples and labels."""
        at = (number * self._size + self._rank) * self.batch_size
        chosen = self._order[torch.arange(at, at + self.batch_size) % len(self._order)]
        return self._splits.train.x[chosen], self._splits.train.y[chosen]

    def val_batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Returns batch `number` of the validation."""
        part = slice(number * self.batch_size, (number + 1) * self.batch_size)
        return self._splits.test.x[part], self._splits.test.y[part]


class SharedRate:
    """Gives a learning rate as Theano's shared variables do, by `get_value` and `set_value`."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def get_value(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    def set_value(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = float(rate)


class TorchModel:
    """A classifier that is trained with SGD and momentum; its numbers are attributes of the class.

    network, data_name   for --model and --data of `paceline train`, where `make_module` and `make_data` are not
                         overridden
    lr_step, lr_gamma    after these epochs the rate is multiplied by lr_gamma
    lr_power             above 0 the rate falls to 0 as (1 - epoch / n_epochs) ** lr_power, in Theano-MPI's "poly"
    n_subb               mini-batches in each batch of the data
    """

    network, data_name = "mlp", "digits"
    n_epochs, batch_size, n_subb = 10, 32, 1
    learning_rate, momentum, weight_decay = 0.01, 0.9, 0.0
    lr_step: tuple[int, ...] = ()
    lr_gamma, lr_power = 0.1, 0.0

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config, self.epoch = dict(config), 0
        self.rank, self.size = int(config["rank"]), int(config["size"])
        self.verbose, self.name = bool(config["verbose"]), str(config.get("mname", type(self).__name__))
        self.n_epochs = int(config.get("epochs", self.n_epochs))
        self.batch_size = int(config.get("batch_size", self.batch_size))
        self.learning_rate = float(config.get("lr", self.learning_rate))
        self.device = torch.device(device_for(str(config.get("device", "cpu")), 0, count_of("cuda")))
        self.data: Any = self.make_data()
        self.module = self.make_module().to(self.device)
        self.params = list(self.module.parameters())
        self.optimizer: Any = self.make_optimizer(self.params)
        self.shared_lr = SharedRate(self.optimizer)
        self._train = self._batches()

    # ---- what a model may override -----------------------------------------------------------------------
    def make_data(self) -> Any:
        return TensorData(load_data(self.settings()), self.batch_size, self.rank, self.size)

    def make_module(self) -> nn.Module:
        """Returns the network. All workers begin with worker 0's weights."""
        settings = self.settings()
        return build_model(settings, load_data(settings))

    def make_optimizer(self, params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, self.learning_rate, self.momentum, weight_decay=self.weight_decay)

    def loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean loss of a batch, and the scores of its samples."""
        scores = self.module(x)
        return nn.functional.cross_entropy(scores, y), scores

    # ---- the contract ------------------------------------------------------------------------------------
    def compile_iter_fns(self, sync_type: str = "avg") -> None:
        """Does nothing: torch needs no compilation."""

    def train_iter(self, count: int, recorder: Recorder) -> None:
        """Makes forward and backward of one mini-batch; the rule makes the step."""
        recorder.start()
        x, y = self.to_device(next(self._train))
        recorder.end("wait")
        recorder.start()
        self.module.train()
        loss, scores = self.loss(x, y)
        torch.autograd.backward(loss)
        recorder.train_error(count, loss.item(), errors(scores, y, 1))
        recorder.end("calc")

    @torch.no_grad()
    def val_iter(self, count: int, recorder: Recorder) -> None:
        x, y = self.to_device(self.data.val_batch(count))
        self.module.eval()
        loss, scores = self.loss(x, y)
        recorder.val_error(count, loss.item(), errors(scores, y, 1), errors(scores, y, TOP))

    def reset_iter(self, mode: str) -> None:
        if mode == "train":
            self._train = self._batches()

    def adjust_hyperp(self, epoch: int) -> None:
        if self.lr_power:
            left = max(0.0, 1 - (epoch + 1) / self.n_epochs), 1 - epoch / self.n_epochs
            self.shared_lr.set_value(self.shared_lr.get_value() * (left[0] / left[1]) ** self.lr_power)
        if epoch + 1 in self.lr_step:
            self.shared_lr.set_value(self.shared_lr.get_value() * self.lr_gamma)

    def save(self, path: str) -> None:
        """Writes the weights as safetensors. Raises OSError."""
        save_model(self.module, Path(f"{path}.safetensors"))

    def cleanup(self) -> None:
        """Does nothing: there is no process that loads data."""

    # ---- parts -------------------------------------------------------------------------------------------
    def settings(self) -> configuration.Config:
        """Returns the settings by which `paceline train` would find network and data."""
        data = {
            "name": str(self.config.get("data", self.data_name)),
            "directory": str(self.config.get("data_dir", "")),
            "resize": int(self.config.get("resize", 0)),
        }
        model = {"name": self.network, "width": float(self.config.get("width", 1.0))}
        return configuration.build({"data": data, "model": model})

    def to_device(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return batch[0].to(self.device), batch[1].to(self.device)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields this rank's batches of the epoch, and goes on with the next epoch where the rule does not stop."""
        epoch = self.epoch
        while True:
            # Ranks that share the data need one order; those that have all of it train in orders of their own.
            own = int(self.config.get("worker", 0)) if self.size == 1 else 0
            self.data.shuffle_data("train", 1_000_003 * own + epoch)
            yield from map(self.data.train_batch, range(self.data.n_batch_train * self.n_subb))
            epoch += 1


def errors(scores: Tensor, y: Tensor, top: int) -> float:
    """Returns the share of samples whose label is not among the `top` best scores."""
    best = scores.topk(min(top, scores.shape[1]), dim=1).indices
    return 1.0 - (best == y[:, None]).any(1).float().mean().item()
