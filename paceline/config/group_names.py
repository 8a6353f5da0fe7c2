"""Puts ranks in place of the hosts, sites and labels that a user names as groups, where a run's places are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.core.adaptive.grouping import AUTO, Groups, ranks_for_names, written
from paceline.core.errors import ConfigError
from paceline.core.scheme import lookup as scheme_called
from paceline.core.scheme import names, types_of
from paceline.core.tiers.group_choice import LINKS, WithRankGroups
from paceline.core.tiers.rank_groups import groups_by_place

if TYPE_CHECKING:
    from paceline.sim.cluster.model import Cluster

Values = Mapping[str, Mapping[str, Any]]


def with_ranks(values: Values, places: Mapping[str, Sequence[str]], by_links: Groups = ()) -> dict[str, dict[str, Any]]:
    """Returns the settings with ranks in the parameter `groups` of every scheme that has one.

    places: as `ranks_for_names` takes them. by_links: what `links` means; () leaves it as it is.
    Raises ConfigError, in one line, for a name that no place has.
    """
    made = {section: dict(entries) for section, entries in values.items()}
    for name in names():
        text = made.get(name, {}).get("groups", AUTO)
        if "groups" not in types_of(scheme_called(name)) or not isinstance(text, str) or text == AUTO:
            continue
        try:
            made[name]["groups"] = ranks_for_names(text, places) if text != LINKS else written(by_links) or text
        except ValueError as error:
            raise ConfigError(f"--{name}.groups: {error}") from None
    return made


def as_recorded(values: Values, hosts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the settings with the groups that `auto` means in a run on these hosts, by rank, written down.

    A simulation of that run may put each worker on a host of its own, so that `auto` would mean other groups there.
    """
    made = {section: dict(entries) for section, entries in values.items()}
    for name in names():
        own = made.get(name, {})
        named = own.get("groups", AUTO) != AUTO or own.get("labels")
        if issubclass(scheme_called(name), WithRankGroups) and not named:
            made[name] = {**own, "groups": written(groups_by_place(hosts, (), len(hosts)))}
    return made


def on_cluster(values: Values, cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Returns the settings with ranks in place of `links` and of the names of a cluster's hosts and sites."""
    from paceline.sim.cluster.near_hosts import groups_by_links  # a launch over ssh needs no simulator

    homes = cluster.worker_placements()
    places = {
        "hosts": [home.host_name for home in homes],
        "kinds of host": [home.host.name for home in homes],
        "sites": [home.host.site for home in homes],
    }
    return with_ranks(values, places, groups_by_links(cluster))
