"""A run that is kept in a real redis-server goes on in another folder, as on another machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.checkpoint.redis_url import Address, StoreSecrets
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.runtime.checkpointing.resume import find
from tests.checkpoint.conftest import PASSWORD
from tests.runtime.conftest import in_threads
from tests.runtime.one_process import assert_same, config_for, saved


def config(out: Path, steps: int, **checkpoint: Any) -> Config:
    return config_for(out, steps=steps, optimizer={"momentum": 0.9}, checkpoint=checkpoint)


SECRETS = StoreSecrets(PASSWORD)


def run(config: Config, secrets: StoreSecrets = SECRETS) -> None:
    in_threads(config, store_secrets=secrets)


def test_a_run_goes_on_from_the_store_in_another_folder(address: Address, tmp_path: Path) -> None:
    first = config(tmp_path / "here" / "a", 5, store=str(address))
    run(first)
    named = config(tmp_path / "there", 9, resume=str(replace(address, run="a")))
    start, refused = find(named, SECRETS)
    assert (start.exact, start.version, refused) == (True, 5, [])
    assert Path(start.path).is_relative_to(tmp_path / "there")
    kept, wanted = start.tensors("model.safetensors"), saved(first)
    assert_same({name: kept[name] for name in wanted}, wanted)
    auto = config(tmp_path / "elsewhere" / "a", 9, store=str(address), resume="auto")
    run(auto)
    assert find(config(tmp_path / "last" / "a", 9, store=str(address), resume="auto"), SECRETS)[0].version == 9
    told = [
        path for path in (tmp_path / "here").rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    assert told == []
    with pytest.raises(ConfigError, match="go on with it by --resume auto"):
        find(config(tmp_path / "new" / "a", 9, store=str(address)), SECRETS)
    with pytest.raises(ConfigError, match="no checkpoint to go on from"):
        find(config(tmp_path / "new" / "a", 9, resume=str(replace(address, run="none"))), SECRETS)
    run(config(tmp_path / "short" / "b", 5, store=str(address)))
    of_a, of_b = (str(replace(address, run=name)) for name in "ab")
    with pytest.raises(ConfigError, match="go on with it by --resume auto"):  # it would write numbers below those of a
        find(config(tmp_path / "new" / "c", 9, resume=of_b, store=of_a), SECRETS)
    with pytest.raises(ConfigError, match="go on with it by --resume auto"):
        find(config(tmp_path / "new" / "d", 9, resume=str(tmp_path / "short" / "b"), store=of_a), SECRETS)


def test_a_store_without_its_password_is_refused_before_the_run(address: Address, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PACELINE_REDIS_PASSWORD"):
        run(config(tmp_path / "a", 5, store=str(address)), secrets=StoreSecrets())
    for flags in (
        {"store": "redis://:hush@h"},
        {"resume": "redis://localhost:7/0"},
        {"store": "redis://localhost", "every": 0.0},
    ):
        with pytest.raises(ConfigError, match="PASSWORD|names no run|leave one"):
            config(tmp_path / "a", 5, **flags)
