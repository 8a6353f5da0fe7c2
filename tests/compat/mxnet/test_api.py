"""Stores of one process, and what every store says to wrong use."""

from __future__ import annotations

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.kvstore import create, shares_of


def test_a_batch_is_cut_by_the_load_of_each_device_as_mxnet_cuts_it() -> None:
    sizes = [[part.stop - part.start for part in shares_of(n, loads)] for n, loads in ((32, [3, 1]), (10, [1, 1, 1]))]
    assert sizes == [[24, 8], [3, 3, 4]]
    with pytest.raises(ConfigError, match="too few"):
        shares_of(2, [1, 1, 1])


def test_lazy_adamw_by_name_decays_weights_as_torch_does_unless_told_otherwise() -> None:
    w = torch.tensor([[1.0], [-2.0]])
    for numbers in ({}, {"wd": 0.0}, {"weight_decay": 0.3}):
        values = []
        for lazy in (True, False):
            kv = create("local")
            kv.set_optimizer("adamw", lr=0.1, lazy=lazy, **numbers)
            kv.init("w", w)
            kv.push("w", torch.ones_like(w))
            values.append(kv.pull("w"))
        torch.testing.assert_close(*values)
