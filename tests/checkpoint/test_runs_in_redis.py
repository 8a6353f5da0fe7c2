"""A run that is kept in a real redis-server goes on in another folder, as on another machine."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.checkpoint.redis_store import RedisStore, connect
from paceline.checkpoint.redis_url import Address, StoreSecrets
from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent, make_supervisor
from paceline.runtime.checkpointing.resume import find
from tests.checkpoint.conftest import PASSWORD
from tests.runtime.conftest import in_threads
from tests.runtime.one_process import assert_same, config_for, saved


def config(out: Path, steps: int, **checkpoint: Any) -> Config:
    return config_for(out, steps=steps, optimizer={"momentum": 0.9}, checkpoint=checkpoint)


SECRETS = StoreSecrets(PASSWORD)


def run(config: Config, of: StoreSecrets = SECRETS) -> None:
    in_threads(config, store_secrets=of)


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
        run(config(tmp_path / "a", 5, store=str(address)), of=StoreSecrets())
    for flags in (
        {"store": "redis://:hush@h"},
        {"resume": "redis://localhost:7/0"},
        {"resume": "valkey://:hush@h/0/a"},
        {"store": "redis://localhost/0/a?password=hush"},
        {"store": "redis://localhost", "every": 0.0},
    ):
        with pytest.raises(ConfigError, match="PASSWORD|names no run|begins with redis|leave one") as refused:
            config(tmp_path / "a", 5, **flags)
        assert "hush" not in str(refused.value)


@contextlib.contextmanager
def watched() -> Iterator[dict[int, bytes]]:
    """What others of this machine can see of each process, again and again until the context ends."""
    seen, over = defaultdict[int, bytes](bytes), threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    with contextlib.suppress(OSError):  # gone meanwhile, or another user's
                        found = (process / name).read_bytes()
                        seen[int(process.name)] += b"" if found in seen[int(process.name)] else found

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def test_no_secret_of_a_store_is_in_processes_or_files_of_a_run(
    address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password, key = (secrets.token_hex(16) for _ in range(2))
    for name, secret in (("PACELINE_REDIS_PASSWORD", password), ("PACELINE_CHECKPOINT_KEY", key)):
        (tmp_path / name).write_text(secret)
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / name))
    client, _ = connect(address, PASSWORD)
    client.config_set("requirepass", password)
    out = tmp_path / "run" / "a"
    try:
        with LocalHost() as host, watched() as seen:
            make_supervisor(config(out, 5, store=str(address)), host.launcher(), Silent()).run()
        assert RedisStore(replace(address, run="a"), StoreSecrets(password, key)).newest()[0], "it was used"
    finally:
        client.config_set("requirepass", PASSWORD)
    left = b"".join(file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file())
    processes = b"".join(seen.values())
    assert b"fork_server" in processes, "they were looked at"
    assert [secret for secret in (password, key) if secret.encode() in processes + left] == []
