from typing import Any

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.scheme import make


@pytest.mark.parametrize(
    ("parameters", "servers", "reason"),
    [
        ({}, 0, "easgd keeps its centre on servers: give --servers 1 or more, or --easgd.synchronous true"),
        ({"memory": "average"}, 1, "asynchronous workers never meet, so there is nothing to average"),
        ({"synchronous": True, "alpha": 0.5}, 1, "take an alpha of at most 0.25"),
    ],
)
def test_what_cannot_work_is_refused_with_the_way_out(parameters: dict[str, Any], servers: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make("easgd", parameters).check(4, servers)


def test_the_rates_are_those_of_the_paper_by_default() -> None:
    scheme: Any = make("easgd", {})
    assert scheme.moving_rate(4) == scheme.moving_rate(4, of_centre=True) == 0.9 / 4
