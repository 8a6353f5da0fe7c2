"""Describes what an evaluator evaluates: the model of `paceline train`, or that of a loop of one's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Dataset
from paceline.engine.import_path import is_path
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.loss import mean_loss
from paceline.runtime.worker.train_loop import build_model, load_data

BATCH = 500
"""Samples of one batch of an evaluation."""
Between = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Describes a model and how it is evaluated. `module` takes the weights as `flat`; `shown`, maybe the same, is
    evaluated.

        test       returns accuracy and loss, and calls what it is given between two batches; None: nothing is evaluated
        chance     the accuracy of a guess, from 0 to 1
        optimizer  what tells the optimizer from another one in a checkpoint
    """

    module: nn.Module
    shown: nn.Module
    flat: FlatModel
    test: Callable[[Between], tuple[float, float]] | None
    chance: float = 0.0
    optimizer: str = ""


def subject_of(config: Config) -> Subject:
    """Returns the model and the test set that `config` names."""
    splits = load_data(config)
    x, y, classes = splits.test.x, splits.test.y, splits.test.classes
    # Named networks take pictures about twice as fast in this layout; views in a user's own would fail on it.
    layout = torch.preserve_format if is_path(config.model.name) else torch.channels_last
    data = Dataset(x.contiguous(memory_format=layout), y, classes) if splits.test.is_pictures else splits.test
    module = build_model(config, splits)
    shown: Any = build_model(config, splits)
    shown = shown.to(memory_format=layout)
    test = functools.partial(judge, shown, data)
    return Subject(module=module, shown=shown, flat=FlatModel(module), test=test, chance=data.chance)


def subject_of_loop(
    module: nn.Module, optimizer: torch.optim.Optimizer, evaluate: Callable[[Any], Any] | None, kind: str
) -> Subject:
    """Returns the model of a loop of one's own, with the function that the loop gives for its evaluation."""
    device = next(module.parameters()).device

    def test(between: Between) -> tuple[float, float]:
        module.eval()
        with torch.no_grad():
            return figures_of(evaluate(module) if evaluate else None)

    flat = FlatModel(module, device, optimizer=optimizer)
    return Subject(module=module, shown=module, flat=flat, test=test if evaluate else None, optimizer=kind)


def figures_of(found: Any) -> tuple[float, float]:
    """Returns accuracy and loss, as a function of the user's own returned them. Raises ConfigError for anything
    else."""
    if isinstance(found, Mapping) and found.keys() and found.keys() <= {"accuracy", "loss"}:
        accuracy, loss = float(found.get("accuracy", 0.0)), float(found.get("loss", 0.0))
    elif isinstance(found, int | float) or (isinstance(found, torch.Tensor) and found.numel() == 1):
        accuracy, loss = float(found), 0.0
    else:
        raise ConfigError(f'evaluate returned {found!r}: return an accuracy, or {{"accuracy": ..., "loss": ...}}')
    if not 0 <= accuracy <= 1:
        raise ConfigError(f"evaluate returned an accuracy of {accuracy:g}: it goes from 0 to 1")
    return accuracy, loss


def judge(model: nn.Module, data: Dataset, between: Between = lambda: None) -> tuple[float, float]:
    """Returns accuracy (0 to 1) and mean loss of `model` on `data`; `between` is called between two batches.

    Where tokens are predicted there is a loss only: that of a token. The accuracy is then 0.
    """
    right, loss = 0, 0.0
    model.eval()
    with torch.inference_mode():
        for x, y in zip(torch.split(data.x, BATCH), torch.split(data.y, BATCH), strict=True):
            between()
            logits = model(x)
            right += 0 if data.predicts_next else int((logits.argmax(1) == y).sum())
            loss += float(mean_loss(logits, x, y)) * len(y)
    return right / len(data), loss / len(data)
