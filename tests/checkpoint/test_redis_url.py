from __future__ import annotations

import pytest

from paceline.checkpoint.redis_url import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("redis://h", Address(host="h")),
        ("REDIS://h", Address(host="h")),
        ("redis://h:7/2", Address(host="h", port=7, db=2)),
        ("redis://h/0/run-1?tls", Address(host="h", run="run-1", tls=True)),
        ("rediss://me@[::1]:7/3", Address(host="::1", port=7, db=3, user="me", tls=True)),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "runs/a", "redis://", "redis://h:x", "redis://h/a", "redis://h/0/../x", "redis://h/0/a?b", "redis://h#a"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give redis://|no name|redis://host:port/db"):
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
    ],
)
def test_a_password_is_refused_and_never_quoted(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        Address.parse(text)
    assert "hush" not in str(refused.value)
