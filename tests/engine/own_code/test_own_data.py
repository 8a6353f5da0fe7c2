"""Data of the user's own: what a function may return, and what is said of everything else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Splits
from paceline.engine.own_code.own_data import load

Loader = Callable[[Callable[[], Any]], Splits]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loader:
    """Loads what a function returns, as if it were in a module of the user's."""

    def loaded(function: Callable[[], Any]) -> Splits:
        module = ModuleType("users_module")
        module.data = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "users_module", module)
        return load("users_module:data")

    return loaded


X, Y = torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])


class Items:
    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Any:
        return self._items[number]


PAIR = (X, Y)
SAME = {
    "tensors": PAIR,
    "arrays, in float64": (X.double().numpy(), Y.numpy()),
    "a TensorDataset": TensorDataset(X, Y),
    "items": Items([(x, int(y)) for x, y in zip(X, Y, strict=True)]),
    "items with a tensor for a label": Items([[x.numpy(), y] for x, y in zip(X, Y, strict=True)]),
    "labels of another type": (X, Y.to(torch.uint8)),
}


@pytest.mark.parametrize("part", SAME.values(), ids=list(SAME))
def test_all_that_torch_would_train_on_becomes_tensors(loads: Loader, part: Any) -> None:
    splits = loads(lambda: (part, PAIR))
    assert torch.equal(splits.train.x, X)
    assert torch.equal(splits.train.y, Y)
    assert (splits.train.classes, len(splits.test)) == (3, 6)


def test_names_may_stand_for_the_order(loads: Loader) -> None:
    assert len(loads(lambda: {"test": (X[:2], Y[:2]), "train": PAIR}).train) == 6


def test_integers_stay_integers_such_as_words_of_a_text(loads: Loader) -> None:
    splits = loads(lambda: [(np.arange(6).reshape(3, 2), Y[:3])] * 2)
    assert splits.train.x.dtype == torch.int64


def test_a_random_split_is_the_same_on_every_host_and_torchs_generator_is_left_alone(loads: Loader) -> None:
    def split() -> Any:
        return random_split(TensorDataset(X, Y), [4, 2])

    torch.manual_seed(5)
    first = loads(split)
    drawn = torch.rand(3)
    torch.manual_seed(6)
    assert torch.equal(loads(split).train.x, first.train.x)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), drawn)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, "returned nothing: return \\(train, test\\), each a torch Dataset or a pair of tensors"),
        ((1, 2, 3), "returned a tuple of 3: return"),
        (PAIR, "returned one pair of tensors, and nothing to test on"),
        ((PAIR, 3), "test is a int, without a length and items"),
        (((X, Y, Y), PAIR), "train has 3 parts"),
        (((X, Y[:4]), PAIR), "train has 6 samples and 4 labels"),
        (((X[:0], Y[:0]), PAIR), "train is empty"),
        (((X, X), PAIR), r"one whole number from 0, not float32 \[2\].*a loop of their own, with paceline.join"),
        (((X, Y.float()), PAIR), "one whole number from 0, not float32"),
        (((X, Y - 1), PAIR), "one whole number from 0"),
        (
            (PAIR, (X[:, :1], Y)),
            r"samples of train are float32 \[2\], and those of test float32 \[1\]: make them alike",
        ),
        ((DataLoader([1]), PAIR), "train is a DataLoader: return its data set"),
        ((Items([{"x": 1}]), PAIR), "an item is a dict of 1, not a pair of sample and label"),
        ((Items([(X[0], 1), (X[0, :1], 1)]), PAIR), r"samples are \[1\] and \[2\]: let its transform make them equal"),
        ((Items([("a picture", 1)]), PAIR), r"a str is no tensor: let its transform make one \(ToTensor\)"),
    ],
)
def test_all_else_is_refused_with_the_way_out(loads: Loader, made: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=f"--data users_module:data.*{words}") as raised:
        loads(lambda: made)
    assert "\n" not in str(raised.value)
