"""Data of the user's own, known by an import path: a function that returns what to train and what to test on.

Each of the two is a pair of tensors or arrays `(x, y)`, or a data set of torch whose items are such pairs. They are
held in memory. Labels are whole numbers from 0; what does not fit that has a loop of its own (docs/own-loop.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.engine import import_path
from paceline.engine.data.dataset import Dataset, Splits, shown
from paceline.engine.torch_generator import seeded

WHAT = "--data"
WAY_OUT = "return (train, test), each a torch Dataset or a pair of tensors (x, y)"
SEED = 0
NAMES = ("train", "test")


def load(path: str) -> Splits:
    """Calls the function; torch's generator is seeded before, so that a random split is the same on every host.

    Raises ConfigError, in one line, for what cannot be imported, fails, or is no such data.
    """
    target = import_path.own(path, WHAT, makes="data")
    with seeded(SEED):
        made = import_path.call(target, path, WHAT)
        if isinstance(made, dict) and {"train", "test"} <= made.keys():
            made = (made["train"], made["test"])
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise ConfigError(f"{WHAT} {path}: returned {import_path.kind_of(made)}: {WAY_OUT}")
        if all(isinstance(part, Tensor) for part in made):
            raise ConfigError(f"{WHAT} {path}: returned one pair of tensors, and nothing to test on: {WAY_OUT}")
        (x, y), (x_test, y_test) = (
            _tensors(part, f"{WHAT} {path}: {name}") for part, name in zip(made, NAMES, strict=True)
        )
    if x.shape[1:] != x_test.shape[1:] or x.dtype != x_test.dtype:
        shapes = f"{shown(x)}, and those of test {shown(x_test)}"
        raise ConfigError(f"{WHAT} {path}: samples of train are {shapes}: make them alike")
    classes = 1 + int(torch.cat([y, y_test]).max())
    return Splits(train=Dataset(x, y, classes), test=Dataset(x_test, y_test, classes))


def _tensors(part: Any, begin: str) -> tuple[Tensor, Tensor]:
    """Samples and labels. Raises ConfigError."""
    x, y = _pair(part, begin)
    x = x.float() if x.is_floating_point() else x
    if not len(x):
        raise ConfigError(f"{begin} is empty")
    if len(x) != len(y):
        raise ConfigError(f"{begin} has {len(x)} samples and {len(y)} labels")
    if y.dim() != 1 or y.is_floating_point() or int(y.min()) < 0:
        raise ConfigError(
            f"{begin}: a label must be one whole number from 0, not {shown(y)}: --data is for classification; other "
            "losses need a loop of their own, with paceline.join"
        )
    return x.contiguous(), y.long()


def _pair(part: Any, begin: str) -> tuple[Tensor, Tensor]:
    if isinstance(part, torch.utils.data.TensorDataset):
        part = part.tensors
    if isinstance(part, tuple | list):
        if len(part) != 2:
            raise ConfigError(f"{begin} has {len(part)} parts: {WAY_OUT}")
        return _tensor(part[0], begin), _tensor(part[1], begin)
    if isinstance(part, torch.utils.data.DataLoader):
        raise ConfigError(f"{begin} is a DataLoader: return its data set; --batch-size says how large batches are")
    if not (hasattr(part, "__getitem__") and hasattr(part, "__len__")):
        raise ConfigError(f"{begin} is {import_path.kind_of(part)}, without a length and items: {WAY_OUT}")
    try:
        items = [part[number] for number in range(len(part))]
    except Exception as error:
        raise ConfigError(f"{begin}: {import_path.described(error)}") from error
    pairs = [item for item in items if isinstance(item, tuple | list) and len(item) == 2]
    if len(pairs) < len(items):
        odd = next(item for item in items if not (isinstance(item, tuple | list) and len(item) == 2))
        raise ConfigError(f"{begin}: an item is {import_path.kind_of(odd)}, not a pair of sample and label: {WAY_OUT}")
    return _stacked([x for x, _ in pairs], begin), _stacked([y for _, y in pairs], begin)


def _stacked(values: list[Any], begin: str) -> Tensor:
    tensors = [_tensor(value, begin) for value in values]
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        one, other = [list(shape) for shape in sorted(shapes)][:2]
        raise ConfigError(f"{begin}: samples are {one} and {other}: let its transform make them equal")
    return torch.stack(tensors) if tensors else torch.empty(0)


def _tensor(value: Any, begin: str) -> Tensor:
    try:
        return torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(
            f"{begin}: {import_path.kind_of(value)} is no tensor: let its transform make one (ToTensor)"
        ) from None
