"""Names of hosts and sites in groups are the ranks of the workers there."""

from __future__ import annotations

import pytest

from paceline.config import build
from paceline.config.group_names import as_recorded, on_cluster, with_ranks
from paceline.core.errors import ConfigError
from paceline.sim.cluster.toml_file import load

SITES = load("two-sites")
HALVES = "0,1,2,3,4,5,6,7;8,9,10,11,12,13,14,15"


@pytest.mark.parametrize("name", ["gsp", "tiers", "halos"])
@pytest.mark.parametrize("text", ["home;away", "home-0 home-1;away-0 away-1", HALVES])
def test_hosts_and_sites_of_a_cluster_are_its_workers(name: str, text: str) -> None:
    assert on_cluster({name: {"groups": text}}, SITES)[name]["groups"] == HALVES


def test_links_are_those_of_the_cluster_or_of_a_file() -> None:
    assert on_cluster({"tiers": {"groups": "links"}}, SITES)["tiers"]["groups"] == HALVES
    values = {"run": {"scheme": "tiers"}, "cluster": {"workers": 16}, "tiers": {"groups": "links:two-sites"}}
    assert build(values).scheme().groups == HALVES  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"--tiers.groups links:nowhere: no cluster file"):
        build({**values, "tiers": {"groups": "links:nowhere"}})
    with pytest.raises(ConfigError, match=r"`paceline probe -o mine.toml` measures yours"):
        build({**values, "tiers": {"groups": "links"}})


def test_groups_of_a_recorded_run_are_those_of_its_hosts() -> None:
    told = as_recorded({"gsp": {"ratio": 2.0}, "halos": {"labels": "a,b,a,b"}}, ["x", "y", "x", "y"])
    assert told["tiers"] == {"groups": "0,2;1,3"}
    assert (told["gsp"], told["halos"]) == ({"ratio": 2.0}, {"labels": "a,b,a,b"})  # by speed; and as written
    assert as_recorded({"tiers": {"groups": "0;1"}}, ["x", "x"])["tiers"] == {"groups": "0;1"}
    assert as_recorded({}, ["x", "x", "x"])["tiers"] == {"groups": "0,1;2"}  # one host: two halves


def test_a_slip_is_told_with_the_names_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"--tiers.groups: 'x' is no rank, and no name .* sites: home, away$"):
        on_cluster({"tiers": {"groups": "0,1;2,x"}}, SITES)


def test_what_is_not_groups_stays() -> None:
    values = {"run": {"scheme": "bsp"}, "gsp": {"labels": "a*16"}, "tiers": {"groups": "auto"}}
    assert with_ranks(values, {}) == values
