"""Keras 3 on torch: one worker trains what the same loop of torch trains, and what is refused."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch

import paceline
from paceline.core.errors import ConfigError
from tests.integrations.toys import loader

if importlib.util.find_spec("keras") is None:
    pytest.skip("keras is not installed: pip install 'paceline[integrations]'", allow_module_level=True)
os.environ.setdefault("KERAS_BACKEND", "torch")
import keras

if keras.backend.backend() != "torch":
    pytest.skip("Keras was imported with another backend", allow_module_level=True)
from paceline.integrations.keras import PacelineOptimizer

pytestmark = [pytest.mark.usefixtures("alone"), pytest.mark.filterwarnings("ignore")]


def network() -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(10)])


def compiled(optimizer: Any) -> Any:
    model = network()
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def trained_by_torch(rates: list[float]) -> Any:
    """The same epochs by a plain loop of torch."""
    model = network()
    optimizer = torch.optim.SGD([each.value for each in model.trainable_weights], lr=rates[0], momentum=0.9)
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        for x, y in loader():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def test_one_worker_trains_what_a_plain_loop_trains_with_the_rate_of_a_callback() -> None:
    rates = [0.1, 0.1, 0.01]
    optimizer = PacelineOptimizer(torch.optim.SGD, learning_rate=0.1, momentum=0.9, scheme="bsp")
    model = compiled(optimizer)
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rates[epoch])
    history = optimizer.fit(model, loader(), epochs=3, verbose=0, callbacks=[schedule])
    for mine, theirs in zip(model.get_weights(), trained_by_torch(rates).get_weights(), strict=True):
        assert torch.allclose(torch.tensor(mine), torch.tensor(theirs), rtol=1e-4, atol=1e-6)
    assert history.history["loss"][2] < history.history["loss"][0]
    assert optimizer.pace.steps == 3 * len(loader())


def test_what_keras_would_do_alone_is_refused_with_the_way_out() -> None:
    optimizer = PacelineOptimizer(torch.optim.SGD, learning_rate=0.1)
    model = compiled(optimizer)
    with pytest.raises(ConfigError, match=r"train with optimizer\.fit"):
        model.fit(loader(), verbose=0)
    with pytest.raises(ConfigError, match="compile the model with this optimizer first"):
        optimizer.fit(compiled("sgd"), loader())
    with pytest.raises(ConfigError, match="come as a torch DataLoader"):
        optimizer.fit(model, paceline.load_digits())
    unbuilt = keras.Sequential([keras.layers.Dense(10)])
    unbuilt.compile(optimizer=optimizer, loss="mse")
    with pytest.raises(ConfigError, match="has no weights yet"):
        optimizer.fit(unbuilt, loader())
