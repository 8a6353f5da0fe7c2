"""Parameters by which a user says who is in a group: ranks, labels, or `auto`, by where workers run."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.adaptive.grouping import AUTO, Groups, check_groups, check_written, groups_written, parse_labels
from paceline.core.errors import ConfigError
from paceline.core.role import RoleContext
from paceline.core.scheme import Scheme, parameter
from paceline.core.tiers.rank_groups import RankGroups, groups_by_place

LINKS = "links"


def _check_groups(text: str) -> None:
    if text not in (AUTO, LINKS):
        try:
            check_groups(text)
        except ValueError as error:
            raise ValueError(
                f"write groups as '0,1;2,3', 'auto', 'links', links:CLUSTER or file:PATH ({error})"
            ) from None


def _check_labels(text: str) -> None:
    if text:
        parse_labels(text)


@dataclass(frozen=True, kw_only=True)
class WithRankGroups(Scheme):
    """Declares the parameters `groups` and `labels`."""

    groups: str = parameter(
        AUTO,
        "ranks or hosts, as '0,1;2,3', or file:PATH; auto: by site or host; links, or links:CLUSTER: by links",
        check=_check_groups,
        file=True,
        links=True,
    )
    labels: str = parameter(
        "", "a label for each rank, as 'a,a,b' or 'a*2,b': equal ones are a group", check=_check_labels
    )

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        if self.groups == LINKS:
            raise ConfigError(
                f"{self.name}.groups = links: those of a cluster file; `paceline probe -o mine.toml` measures yours, "
                "then give links:mine.toml"
            )
        check_written(self.name, self.groups, self.labels, workers)

    def written(self) -> Groups:
        """Returns the groups that the user wrote down; () for auto."""
        return groups_written(self.groups, self.labels)

    def rank_groups(self, place: RoleContext) -> RankGroups:
        """Returns the groups, made once for all the roles that a process has with the same context."""
        key = (len(place.workers), place.hosts, place.sites)
        known = self.__dict__.get("_groups")
        if known is None or known[0][0] != key[0] or known[0][1] is not key[1] or known[0][2] is not key[2]:
            found = self.written() or groups_by_place(place.hosts, place.sites, len(place.workers))
            known = key, RankGroups(found)
            self.__dict__["_groups"] = known
        return known[1]
