import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.tiers.scheme_text import parse_tier


def test_a_scheme_stands_alone_or_with_parameters() -> None:
    assert parse_tier("bsp") == ("bsp", {})
    assert parse_tier(" localsgd(tau=4) ") == ("localsgd", {"tau": 4})
    assert parse_tier('postlocal(switch="4 steps", tau=2)') == ("postlocal", {"switch": "4 steps", "tau": 2})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write a scheme"),
        ("bsp; asp", "write a scheme"),
        ("localsgd(tua=4)", "did you mean 'tau'"),
        ("localsgd(tau=many)", "must be int"),
    ],
)
def test_what_names_no_scheme_is_refused_with_the_way_out(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_tier(text)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown scheme"):
        parse_tier("bps")
