"""Grouping-SGD: synchronous inside a group of like workers, asynchronous between groups.

    worker i:  repeat  g_i <- grad f_i(w);  push g_i;  w <- pull
    server:    upon the last g_i of group G:
                   g <- sum(n_i g_i) / sum(n_i)   over G
                   Y <- 1 + updates applied since G's weights left the server
                   w <- w - eta s(Y) g;   answer the members of G

s(Y) = 1/Y is the paper's weighting factor WF: with m equal groups in turn Y settles at m, and the m updates of a
turn sum to the global mean. One group is BSP; singleton groups are ASP with the same weighting. The weighting
multiplies the mean gradient before momentum and weight decay. Staleness is counted per shard, in whole-model
versions, from the weights the gradient was computed on.

Use it on clusters made of a few kinds of machine. Not when every machine has its own speed (that is ASP), nor when
the slow group holds data nobody else has: its updates count little.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from paceline.core.clocked import ClockedServer, ClockedWorker
from paceline.core.errors import ConfigError
from paceline.core.role import Place
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.staleness import Weighting

Groups = tuple[tuple[int, ...], ...]


def parse_groups(text: str) -> Groups:
    """`"0,1;2,3"` -> ((0, 1), (2, 3)). Raises ValueError when a rank is not a number or appears twice."""
    groups = tuple(tuple(int(rank) for rank in group.split(",")) for group in text.split(";") if group.strip())
    ranks = list(itertools.chain.from_iterable(groups))
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"a worker may be in one group only: {text!r}")
    return groups


def groups_by_speed(seconds_per_step: Sequence[float], ratio: float) -> Groups:
    """Ranks sorted by step time, cut wherever the next one is slower by `ratio` or more."""
    if not seconds_per_step:
        return ()
    order = sorted(range(len(seconds_per_step)), key=lambda rank: (seconds_per_step[rank], rank))
    groups = [[order[0]]]
    for before, rank in itertools.pairwise(order):
        if seconds_per_step[rank] >= ratio * seconds_per_step[before]:
            groups.append([])
        groups[-1].append(rank)
    return tuple(tuple(group) for group in groups)


def _check_groups(text: str) -> None:
    if text != "auto":
        try:
            parse_groups(text)
        except ValueError as error:
            raise ValueError(f"write groups of ranks as '0,1;2,3', or 'auto' ({error})") from None


@scheme(
    "gsp",
    summary="groups: synchronous inside a group, asynchronous between groups, weighted 1/Y",
    paper=Paper(
        key="jiang2019novel",
        authors="Jiang, Wenbin and Ye, Geyan and Yang, Laurence T. and Zhu, Jian and Ma, Yang and others",
        title="A Novel Stochastic Gradient Descent Algorithm Based on Grouping over Heterogeneous Cluster Systems "
        "for Distributed Deep Learning",
        venue="IEEE/ACM International Symposium on Cluster, Cloud and Grid Computing (CCGRID)",
        year=2019,
        url="https://doi.org/10.1109/CCGRID.2019.00053",
    ),
)
class GSP(Scheme):
    groups: str = parameter("auto", "ranks by group, as '0,1;2,3', or 'auto': by measured speed", check=_check_groups)
    ratio: float = parameter(1.5, "auto: a worker this much slower than the next starts a new group", low=1.0)
    weighting: str = parameter(
        "inverse",
        "weight of a late update: none, inverse (1/Y), power:p, exponential:a, cutoff:limit",
        check=Weighting.parse,
    )

    Worker = ClockedWorker

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        if self.groups == "auto":
            return
        ranks = sorted(itertools.chain.from_iterable(parse_groups(self.groups)))
        if ranks != list(range(workers)):
            raise ConfigError(f"gsp.groups = {self.groups!r} must name each of the workers 0..{workers - 1} once")

    class Server(ClockedServer):
        def __init__(self, scheme: Any, place: Place) -> None:
            self.grouping = (scheme.groups, scheme.ratio)
            super().__init__(scheme, place)
            self.weigh = Weighting.parse(scheme.weighting)  # type: ignore[method-assign]

        def partition(self) -> Groups:
            groups, ratio = self.grouping
            if groups != "auto":
                return parse_groups(groups)
            return groups_by_speed(self.place.seconds_per_step, ratio) or (self.workers,)
