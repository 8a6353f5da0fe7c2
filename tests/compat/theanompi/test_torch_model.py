"""Base classes of models and data: shards, rates and one pass of an epoch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.compat.theanompi.recorder import Recorder
from paceline.compat.theanompi.torch_model import TensorData, TorchModel, errors
from paceline.engine.data.dataset import Dataset, Splits

CONFIG = {"rank": 0, "size": 1, "verbose": False}


def splits(count: int) -> Splits:
    data = Dataset(
        torch.arange(count, dtype=torch.float32)[:, None, None, None], torch.zeros(count, dtype=torch.long), 1
    )
    return Splits(train=data, test=data)


def test_ranks_have_equal_numbers_of_batches_and_together_all_samples() -> None:
    ranks = [TensorData(splits(20), 4, rank, 2) for rank in range(2)]
    assert [data.n_batch_train for data in ranks] == [3, 3]  # five batches, the last ones repeated
    for data in ranks:
        data.shuffle_data("train", common_seed=3)
    seen = [int(x) for data in ranks for n in range(3) for x in data.train_batch(n)[0].flatten()]
    assert set(seen) == set(range(20))
    assert len(seen) == 24
    assert ranks[0].n_batch_val == 5
    assert len(ranks[0].val_batch(4)[0]) == 4


def test_the_rate_falls_at_its_steps_or_as_a_power() -> None:
    model = TorchModel({**CONFIG, "lr": "0.1", "epochs": "4"})
    model.lr_step = (2,)
    rates = []
    for epoch in range(3):
        model.adjust_hyperp(epoch)
        rates.append(model.shared_lr.get_value())
    assert rates == pytest.approx([0.1, 0.01, 0.01])
    model.lr_step, model.lr_power = (), 0.5
    model.shared_lr.set_value(0.1)
    for epoch in range(4):
        model.adjust_hyperp(epoch)
        rates.append(model.shared_lr.get_value())
    assert rates[3:] == pytest.approx([0.1 * (1 - n / 4) ** 0.5 for n in range(1, 5)])


def test_an_iteration_leaves_gradients_and_says_its_loss(tmp_path: Path) -> None:
    model, recorder = TorchModel({**CONFIG, "mname": "Mine"}), Recorder(print_freq=1)
    model.train_iter(0, recorder)
    recorder.print_train_info(1)
    assert all(p.grad is not None for p in model.params)
    assert recorder.info["train_info"][0][1] == pytest.approx(2.3, abs=0.3)  # of ten classes
    model.val_iter(0, recorder)
    assert recorder.print_val_info(1) is not None
    model.save(str(tmp_path / "Mine_0"))
    assert (tmp_path / "Mine_0.safetensors").exists()
    assert model.name == "Mine"


def test_errors_count_labels_that_are_not_among_the_best() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    y = torch.tensor([1, 2])
    assert (errors(scores, y, 1), errors(scores, y, 2), errors(scores, y, 5)) == (0.5, 0.0, 0.0)
