"""Checkpoints in a real redis-server."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as tensors

from paceline.checkpoint.folder_store import FolderStore
from paceline.checkpoint.manifest import Damaged
from paceline.checkpoint.redis_store import RedisStore, StoreTimeoutError, connect
from paceline.checkpoint.redis_url import Address, StoreSecrets
from paceline.core.errors import ConfigError
from paceline.runtime.checkpointing.resume import _taken
from tests.checkpoint.conftest import PASSWORD
from tests.launch.process_tree import within

SECRETS = StoreSecrets(PASSWORD)
OLD, NEW = b"old" * 500, b"new" * 500


def store(address: Address, run: str = "a") -> RedisStore:
    return RedisStore(replace(address, run=run), SECRETS, piece_bytes=400)


def save(shelf: RedisStore, number: int, data: bytes, finite: bool = True) -> None:
    shelf.save(number, {"a.safetensors": [data[:700], data[700:]], "b.json": [data]}, finite=finite, step=number)


def keys(address: Address) -> dict[bytes, Any]:
    client, _ = connect(address, PASSWORD)
    return {key: client.ttl(key) for key in client.scan_iter()}


def test_what_was_saved_is_loaded_also_into_a_folder(address: Address, tmp_path: Path) -> None:
    shelf, folder = store(address), FolderStore(tmp_path)
    save(shelf, 3, OLD)
    assert [shelf.load(3, entry) for entry in shelf.manifest(3).files] == [OLD, OLD]
    assert store(address, "b").numbers() == []
    folder.take(store(address), 3, 5)
    assert folder.newest() == (5, [])
    assert folder.manifest(5) == shelf.manifest(3)


def test_all_keys_are_below_those_of_the_run_and_none_is_left_of_what_is_deleted(address: Address) -> None:
    shelf = store(address)
    for number in range(1, 5):
        save(shelf, number, NEW)
    assert shelf.rotate(2) == [1, 2]
    assert shelf.numbers() == [3, 4]
    assert all(key.startswith((b"paceline:a:3:", b"paceline:a:4:", b"paceline:a:checkpoints")) for key in keys(address))
    assert set(keys(address).values()) == {-1}, "they stay"


def test_a_writer_that_breaks_off_leaves_the_old_one_and_pieces_that_vanish(address: Address) -> None:
    def breaks() -> Any:
        yield NEW
        raise KeyboardInterrupt

    shelf = store(address)
    save(shelf, 1, OLD)
    with pytest.raises(KeyboardInterrupt):
        shelf.save(2, {"a.safetensors": breaks()}, finite=True)
    assert store(address).newest() == (1, [])
    left = [ttl for key, ttl in keys(address).items() if key.startswith(b"paceline:a:2:")]
    assert left
    assert min(left) > 0


def test_every_flipped_byte_and_every_missing_piece_is_noticed(address: Address) -> None:
    shelf, draw = store(address), random.Random(1)
    client, _ = connect(address, PASSWORD)
    save(shelf, 1, OLD)
    save(shelf, 2, NEW)
    pieces = [key for key in client.keys("paceline:a:2:*") if not key.endswith(b":pieces")]
    for key in sorted(pieces) * 4:
        whole = client.get(key)
        at = draw.randrange(len(whole))
        client.set(key, whole[:at] + bytes([whole[at] ^ draw.randrange(1, 256)]) + whole[at + 1 :])
        assert shelf.newest()[0] == 1, (key, at)
        client.delete(key)
        assert shelf.newest()[0] == 1, key
        client.set(key, whole)
    assert shelf.newest() == (2, [])


def test_a_wrong_password_and_a_server_that_is_not_there_are_told_in_one_line(address: Address) -> None:
    with pytest.raises(ConfigError, match="PACELINE_REDIS_PASSWORD") as refused:
        RedisStore(address, StoreSecrets("wrong"))
    assert "hush" not in str(refused.value)
    with pytest.raises(ConfigError, match="is a redis-server running there"):
        RedisStore(replace(address, port=1), SECRETS)


def test_a_server_that_goes_away_is_an_error_of_the_system_as_a_full_disk_is(address: Address) -> None:
    shelf = store(address)
    client, _ = connect(address, PASSWORD)
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(OSError) as refused:
            save(shelf, 1, OLD)
    finally:
        client.config_set("maxmemory", "0")
    assert "memory" in str(refused.value.strerror)
    assert shelf.numbers() == []


def test_pieces_of_a_writer_that_was_killed_do_not_damage_what_is_written_later(address: Address) -> None:
    def breaks() -> Any:
        yield NEW
        raise KeyboardInterrupt

    shelf = store(address)
    with pytest.raises(KeyboardInterrupt):
        shelf.save(1, {"a.safetensors": breaks()}, finite=True)
    shelf.save(1, {"a.safetensors": [OLD[:500]]}, finite=True)
    assert shelf.newest() == (1, [])


def test_a_deletion_that_is_cut_short_anywhere_leaves_the_checkpoint_or_nothing(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, left = store(address), set[int]()
    client, error = connect(address, PASSWORD)
    real = type(client.connection_pool).get_connection
    for calls in range(1, 6):
        save(shelf, 1, OLD)
        count = iter(range(1, calls))

        def connection(*given: Any, count: Any = count, **more: Any) -> Any:
            if next(count, None) is None:
                raise error("gone")
            return real(*given, **more)

        with monkeypatch.context() as cut:
            cut.setattr(type(client.connection_pool), "get_connection", connection)
            with contextlib.suppress(OSError):
                shelf.delete(1)
        left.add(len(keys(address)))
        assert bool(keys(address)) == (shelf.newest()[0] == 1)
    assert len(left) == 2


def test_a_checkpoint_is_taken_from_a_store_by_reading_it_once(
    address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, folder, read = store(address), FolderStore(tmp_path), list[int]()
    for number, finite in ((1, True), (2, True), (3, True), (4, False)):
        save(shelf, number, OLD, finite)
    client, _ = connect(address, PASSWORD)
    client.delete("paceline:a:3:b.json:0")
    real = RedisStore._pieces
    monkeypatch.setattr(RedisStore, "_pieces", lambda self, n, file: (read.append(n), real(self, n, file))[1])
    monkeypatch.setattr(
        "paceline.runtime.checkpointing.checkpoint_validation.check", lambda *_: None
    )  # what files of a run are like is another matter
    refused = _taken(shelf, folder, named=False)
    assert [line.partition(" of the store is passed over: ")[0] for line in refused] == ["checkpoint 4", "checkpoint 3"]
    assert folder.newest() == (2, [])
    assert read == [3, 3, 2, 2], "files"
    folder.save(4, {}, finite=True)
    read.clear()
    assert _taken(shelf, folder, named=False) == read == []


def test_one_that_nobody_could_go_on_from_is_left_in_the_store(address: Address, tmp_path: Path) -> None:
    shelf, folder = store(address), FolderStore(tmp_path)
    model = {"model.safetensors": [tensors({"w": torch.ones(2)})]}
    shelf.save(1, model, finite=True)
    shelf.save(2, {**model, "worker-00000.json": [b"[" * 100_000]}, finite=True)
    (line,) = _taken(shelf, folder, named=False)
    assert "nested deeper than 32 levels" in line
    assert folder.newest() == (1, [])


def test_numbers_and_manifests_that_are_none_are_passed_over(address: Address) -> None:
    shelf = store(address)
    save(shelf, 1, OLD)
    client, _ = connect(address, PASSWORD)
    client.zadd("paceline:a:checkpoints", {"nonsense": 2, "-3": 3, "9" * 400: 4, "5": 5, "6": 6})
    client.lpush("paceline:a:5:manifest", "x")
    client.set("paceline:a:6:manifest", b"\xff" * 100)
    number, refused = shelf.newest()
    assert (number, [line.partition(" is passed over: ")[0] for line in refused]) == (
        1,
        ["checkpoint 6", "checkpoint 5"],
    )
    client.delete("paceline:a:checkpoints")
    client.set("paceline:a:checkpoints", "x")
    with pytest.raises(OSError, match="wrong kind"):
        shelf.numbers()


# ---- seals ---------------------------------------------------------------------------------------------------
KEY, OTHER = StoreSecrets(PASSWORD, "k" * 32), StoreSecrets(PASSWORD, "o" * 32)


def sealed(address: Address, secrets: StoreSecrets = KEY, run: str = "a") -> RedisStore:
    return RedisStore(replace(address, run=run), secrets, piece_bytes=400)


def test_what_was_signed_is_read_with_the_key_and_by_who_has_none(address: Address) -> None:
    save(sealed(address), 1, OLD)
    assert sealed(address).newest() == store(address).newest() == (1, [])


def test_what_nobody_with_the_key_has_signed_is_passed_over_and_said(address: Address) -> None:
    save(store(address), 1, OLD)
    save(sealed(address, OTHER), 2, OLD)
    save(sealed(address), 3, OLD)
    assert sealed(address).newest() == (3, [])
    sealed(address).delete(3)
    number, refused = sealed(address).newest()
    assert number is None
    assert [re.sub(".*: redis://[^ ]* ", "", line) for line in refused] == [
        "checkpoint 2, manifest: signed with another key than PACELINE_CHECKPOINT_KEY, or changed since",
        "checkpoint 1, manifest is not signed, and PACELINE_CHECKPOINT_KEY is given",
    ]


def test_weights_changed_together_with_their_checksums_are_noticed(address: Address) -> None:
    save(sealed(address), 1, OLD)
    client, _ = connect(address, PASSWORD)
    seal = client.get("paceline:a:1:seal")
    save(store(address), 1, NEW)  # by somebody without the key: whole, and with right checksums
    assert store(address).newest() == (1, [])
    client.set("paceline:a:1:seal", seal)
    assert sealed(address).newest()[0] is None


def test_a_piece_of_equal_checksum_is_noticed(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    save(sealed(address), 1, OLD)
    client, _ = connect(address, PASSWORD)
    key = next(key for key in client.keys("paceline:a:1:a.safetensors:0"))
    client.set(key, b"x" * len(client.get(key)))
    monkeypatch.setattr("zlib.crc32", lambda *_: 0)  # whoever makes a collision
    shelf = sealed(address)
    shelf._manifest(1)
    with pytest.raises(Damaged, match="it is not what was signed"):
        b"".join(shelf._pieces(1, "a.safetensors"))


def test_a_seal_of_another_run_or_number_is_none_here(address: Address) -> None:
    save(sealed(address, run="b"), 7, OLD)
    client, _ = connect(address, PASSWORD)
    for key in client.keys("paceline:b:*"):
        if client.type(key) == b"string":
            client.set(key.replace(b":b:7:", b":a:9:"), client.get(key))
    client.zadd("paceline:a:checkpoints", {"9": 9})
    assert store(address).newest() == (9, [])
    assert sealed(address).newest()[0] is None


def test_a_store_on_another_machine_wants_a_key() -> None:
    with pytest.raises(ConfigError, match="PACELINE_CHECKPOINT_KEY"):
        RedisStore(Address.parse("redis://stores.example/0/a?tls"), SECRETS)


def test_a_server_that_hangs_is_asked_once_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.checkpoint.redis_store.TIMEOUT_S", 0.2)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = server.accept()
                    with caller:
                        while data := caller.recv(1 << 16):
                            heard.append(data)

        threading.Thread(target=listen, daemon=True).start()
        with pytest.raises(ConfigError, match="127.0.0.1.*[Tt]ime"):
            RedisStore(Address(host="127.0.0.1", port=server.getsockname()[1], run="a"), SECRETS)
        assert within(60.0, lambda: bool(heard)), "what was sent waits until it is read"
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
    assert len([data for data in heard if b"AUTH" in data or b"PING" in data or b"HELLO" in data]) == 1


def test_a_server_that_is_stopped_is_given_up_at_the_first_command(
    address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = connect(address, PASSWORD)
    process = client.info()["process_id"]
    monkeypatch.setattr("paceline.checkpoint.redis_store.TIMEOUT_S", 1.0)  # enough for it while it is well
    shelf = store(address)
    save(shelf, 1, OLD)
    sent: list[object] = []
    real = type(shelf._redis).execute_command

    def execute(self: Any, *of: Any, **more: Any) -> Any:
        sent.append(of[0])
        return real(self, *of, **more)

    monkeypatch.setattr(type(shelf._redis), "execute_command", execute)
    os.kill(process, signal.SIGSTOP)
    try:
        for act in (
            lambda: save(shelf, 2, NEW),
            shelf.newest,
            lambda: _taken(shelf, FolderStore(tmp_path), named=False),
        ):
            sent.clear()
            with pytest.raises(StoreTimeoutError, match="timed out after 1 s"):
                act()
            assert len(sent) == 1, "nothing is asked after it"
    finally:
        os.kill(process, signal.SIGCONT)
    assert store(address).newest() == (1, [])
