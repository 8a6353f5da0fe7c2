"""Whole runs in mixed precision: they train, and what travels is float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.config import build
from paceline.core.errors import ConfigError
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_a_run_trains_and_moves_the_same_bytes_in_any_precision(threads: Runner, out: Path, name: str) -> None:
    config = config_for(out, steps=40, model={"precision": name})
    summary = threads(config)
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.5
    weights = saved(config)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    length = sum(tensor.numel() for tensor in weights.values())
    assert summary.bytes_up == pytest.approx(4 * length * 2 * (40 + 1), rel=0.1)


def test_bf16_is_not_fp32(threads: Runner, tmp_path: Path) -> None:
    configs = [config_for(tmp_path / name, steps=3, model={"precision": name}) for name in ("fp32", "bf16")]
    exact, half = [(threads(config), saved(config))[1] for config in configs]
    assert any(not torch.equal(exact[name], half[name]) for name in exact)
    for name in exact:
        torch.testing.assert_close(half[name], exact[name], rtol=0.1, atol=0.02)


def test_fp16_on_cpus_is_refused_before_anything_starts() -> None:
    values: dict[str, dict[str, Any]] = {"model": {"precision": "fp16"}, "cluster": {"device": "cpu"}}
    with pytest.raises(ConfigError, match="--precision bf16"):
        build(values)
