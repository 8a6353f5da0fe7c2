"""No worker makes a server of a store hold more names than it could have a use for."""

from __future__ import annotations

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.kvstore import KVStore
from tests.compat.mxnet.store_threads import run


def test_a_script_hears_of_it_in_one_line() -> None:
    def work(kv: KVStore) -> None:
        kv.init("k" * 2000, torch.zeros(1))

    with pytest.raises(ConfigError, match="^key 'k{39} has 2002 characters: 1024 at most$"):
        run(work, workers=1)
