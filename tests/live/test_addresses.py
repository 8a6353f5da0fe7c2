"""At which addresses a run may listen."""

from __future__ import annotations

import pytest

from paceline.core.errors import ConfigError
from paceline.live.addresses import check_bind, is_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_nobody_beyond_this_machine_reaches_a_loopback_address(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "[::]"])
@pytest.mark.parametrize("protected", [False, True])
def test_an_address_that_stands_for_all_is_refused_whether_or_not_there_is_tls(host: str, protected: bool) -> None:
    with pytest.raises(ConfigError, match="give the one address by which others reach this machine"):
        check_bind(host, protected)


def test_others_reach_a_run_under_tls_only() -> None:
    with pytest.raises(ConfigError, match="without TLS"):
        check_bind("10.0.0.1", protected=False)
    check_bind("10.0.0.1", protected=True)
    check_bind("127.0.0.1", protected=False)
