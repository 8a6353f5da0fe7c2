"""Theano-MPI's own models, small: each makes a step, and the GANs share their critic only."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

from paceline.compat.theanompi.models import CLASSIFIERS, CLIP, GANS, class_named
from paceline.compat.theanompi.recorder import Recorder

SMALL = {"rank": 0, "size": 1, "verbose": False, "data": "digits", "batch_size": "4", "width": "0.05"}
NEED_A_LIBRARY = ("AlexNet", "VGG16", "ResNet50", "Wide_ResNet")


@pytest.mark.parametrize("name", [*CLASSIFIERS, *GANS])
def test_each_makes_an_iteration(name: str) -> None:
    if name in NEED_A_LIBRARY and importlib.util.find_spec("pytorchcv") is None:
        pytest.skip("pytorchcv is not installed (paceline[zoo])")
    model: Any = class_named(name)({**SMALL, "resize": "32"} if name != "LSTM" else SMALL)
    before = [parameter.detach().clone() for parameter in model.params]
    recorder = Recorder(print_freq=1)
    model.train_iter(0, recorder)
    model.optimizer.step()
    recorder.print_train_info(1)
    assert recorder.info["train_info"][0][1] == recorder.info["train_info"][0][1]  # a number
    assert any(not torch.equal(old, new) for old, new in zip(before, model.params, strict=True))
    model.val_iter(0, recorder)
    assert recorder.print_val_info(1) is not None


def test_a_gan_shares_its_critic_and_each_worker_keeps_its_generator() -> None:
    model: Any = class_named("WGAN")(SMALL)
    shared = {id(parameter) for parameter in model.params}
    assert not shared & {id(parameter) for parameter in model.generator.parameters()}
    before = [parameter.detach().clone() for parameter in model.generator.parameters()]
    model.train_iter(0, Recorder())
    assert max(float(parameter.detach().abs().max()) for parameter in model.params) <= CLIP
    assert any(not torch.equal(a, b) for a, b in zip(before, model.generator.parameters(), strict=True))
