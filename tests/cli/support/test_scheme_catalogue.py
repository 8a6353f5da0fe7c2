"""The catalogue of schemes as users read it."""

from __future__ import annotations

import pytest

from paceline.cli.support import scheme_catalogue
from paceline.core.scheme import names


@pytest.mark.parametrize(
    ("family", "members"),
    [
        (scheme_catalogue.TOGETHER, {"bsp", "lbbsp"}),
        (scheme_catalogue.AS_THEY_COME, {"asp", "ssp", "gsp", "ksync"}),
        (scheme_catalogue.LOCALLY, {"esync", "localsgd", "easgd", "eamsgd"}),
        (scheme_catalogue.GOSSIP, {"gosgd", "adpsgd", "sgp"}),
        (scheme_catalogue.COMPOSITE, {"hybrid", "tiers", "halos"}),
    ],
)
def test_a_scheme_stands_with_those_of_its_kind(family: str, members: set[str]) -> None:
    assert members <= set(scheme_catalogue.families()[family])
    assert sorted(name for family in scheme_catalogue.families().values() for name in family) == names()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("asp", "servers"),
        ("bsp", "servers, or collectives alone (`--servers 0`)"),
        ("localsgd", "collectives (`--servers 0`); where there are servers, they carry the means"),
        ("gosgd", "workers that reach one another; no servers"),
        ("tiers", "servers, and workers that reach one another; the coordinator decides"),
    ],
)
def test_what_a_scheme_runs_on_is_told(name: str, words: str) -> None:
    assert scheme_catalogue.needs(name)["runs on"] == words
