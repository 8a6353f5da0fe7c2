"""skorch: one worker trains what `fit` trains alone, and the net is afterwards what it was."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

import paceline
from tests.integrations.toys import assert_same

if importlib.util.find_spec("skorch") is None:
    pytest.skip("skorch is not installed: pip install 'paceline[integrations]'", allow_module_level=True)
from skorch import NeuralNetClassifier
from skorch.callbacks import LRScheduler
from torch import nn
from torch.utils.data import DataLoader

from paceline.integrations.skorch import PacelineCallback

pytestmark = [pytest.mark.usefixtures("alone"), pytest.mark.filterwarnings("ignore")]


class Network(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def fitted(*callbacks: Any) -> Any:
    torch.manual_seed(1)
    images, targets = paceline.load_digits()
    net = NeuralNetClassifier(
        Network,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.SGD,
        optimizer__momentum=0.9,
        lr=0.1,
        max_epochs=3,
        verbose=0,
        callbacks=list(callbacks),
    )
    return net.fit(images.flatten(1).numpy()[:400], targets.numpy()[:400])


def test_one_worker_trains_what_skorch_trains_alone() -> None:
    alone, shared = fitted(), fitted(PacelineCallback("bsp"))
    assert_same(alone.module_, shared.module_)
    assert shared.history[:, "train_loss"] == pytest.approx(alone.history[:, "train_loss"], rel=1e-4)
    assert shared.history[:, "valid_acc"] == pytest.approx(alone.history[:, "valid_acc"])


def test_a_scheduler_by_batches_goes_all_its_way() -> None:
    rates = LRScheduler(torch.optim.lr_scheduler.OneCycleLR, step_every="batch", max_lr=0.1, total_steps=9)
    net = fitted(PacelineCallback("bsp"), rates)
    scheduler = dict(net.callbacks_)["LRScheduler"].lr_scheduler_
    assert scheduler.last_epoch == scheduler.total_steps


def test_the_net_has_its_own_optimizer_and_loader_again() -> None:
    net = fitted(PacelineCallback("asp"))
    assert isinstance(net.optimizer_, torch.optim.SGD)
    assert net.iterator_train is DataLoader
