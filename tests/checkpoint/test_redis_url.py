from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint.redis_url import Address, StoreSecrets
from paceline.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("redis://localhost", Address(host="localhost")),
        ("REDIS://127.0.0.7", Address(host="127.0.0.7")),
        ("redis://h:7/2?plain", Address(host="h", port=7, db=2, plain=True)),
        ("redis://h/0/run-1?tls", Address(host="h", run="run-1", tls=True)),
        ("rediss://me@[::1]:7/3", Address(host="::1", port=7, db=3, user="me", tls=True)),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "runs/a", "redis://", "redis://h:x", "redis://h/a", "redis://h/0/../x?tls", "redis://h/0/a?b", "redis://h#a"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give redis://|not the name|redis://host:port/db"):
        Address.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "redis://:hush@h",
        "redis://me:hush@h:7/0/run",
        "redis://:hush@h:x",
        "redis://:hush@/a",
        "REDIS://:hush@h",
        "http://:hush@h",
        "redis://h/0/a?password=hush",
        "redis://h/0/a#hush",
    ],
)
def test_a_password_is_refused_and_never_quoted(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        Address.parse(text)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("host", ["stores.example", "10.0.0.7", "[fe80::1]", "localhost.example"])
def test_another_machine_is_reached_under_tls_or_by_an_explicit_word(host: str) -> None:
    with pytest.raises(ValueError, match=r"is on another machine.*put \?tls at its end, or \?plain"):
        Address.parse(f"redis://{host}/0/run")
    assert Address.parse(f"redis://{host}/0/run?tls").tls
    assert not Address.parse(f"redis://{host}/0/run?plain").tls


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_this_machine_is_not_asked_for_tls(host: str) -> None:
    assert Address.parse(f"redis://{host}/0").is_here


def test_secrets_come_from_the_environment_or_from_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef\n")
    found = StoreSecrets.of({"PACELINE_REDIS_PASSWORD": "hush", "PACELINE_CHECKPOINT_KEY_FILE": str(tmp_path / "key")})
    assert (found.password, found.key) == ("hush", "0123456789abcdef")
    assert "hush" not in repr(found)
    assert "0123" not in repr(found)
    with pytest.raises(ConfigError, match="shorter than 16 characters"):
        StoreSecrets.of({"PACELINE_CHECKPOINT_KEY": "short"})
    with pytest.raises(ConfigError, match="PACELINE_CHECKPOINT_KEY_FILE: .*No such file"):
        StoreSecrets.of({"PACELINE_CHECKPOINT_KEY_FILE": str(tmp_path / "none")})
