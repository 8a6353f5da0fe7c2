"""Grouping-SGD is synchronous inside a group of equally fast workers, and asynchronous between groups.

    worker i:  repeat  g_i <- grad f_i(w);  push g_i;  w <- pull
    server:    upon the last g_i of group G:
                   g <- sum(n_i g_i) / sum(n_i)   over G
                   Y <- 1 + updates applied since G's weights left the server
                   w <- w - eta s(Y) g;   answer the members of G

s(Y) = 1/Y is the paper's weighting factor WF: with m equal groups in turn Y settles at m, and the m updates of a
turn sum to the global mean. One group is BSP; singleton groups are ASP with the same weighting. The weighting
multiplies the mean gradient before momentum and weight decay. Staleness is counted per shard, in whole-model
versions, from the weights the gradient was computed on.

Groups are written down (`groups`, also `file:PATH` of MXNet-G's `groups` file; `labels`, one for each rank), or found:
clusters of measured step times (see paceline.core.adaptive.grouping). The coordinator looks again every `regroup`
exchanges a worker, and regroups when another grouping describes the speeds better by `hysteresis`, or makes the rounds
of a worker shorter by more than `ratio`: one slow worker among many would hold up its whole group. Regrouping is ours.
It takes effect between two rounds of a group, for all its members alike; a worker's first push in its new group names
the group's members, so that every shard makes the same rounds, in whatever order pushes reach it.

Use it on clusters made of a few kinds of machine. Not when every machine has its own speed (that is ASP), nor when
the slow group holds data nobody else has: its updates count little.
"""

from __future__ import annotations

from paceline.core.adaptive.grouping import AUTO, Groups, check_groups, check_written, groups_written, parse_labels
from paceline.core.adaptive.regrouping import GroupedServer, GroupedWorker, GroupingCoordinator
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Weighted
from paceline.core.paramserver.staleness import Weighting
from paceline.core.role import Role
from paceline.core.scheme import Paper, RateShare, parameter, scheme


def _check_groups(text: str) -> None:
    if text != AUTO:
        try:
            check_groups(text)
        except ValueError as error:
            raise ValueError(f"write groups of ranks as '0,1;2,3', or 'auto', or file:PATH ({error})") from None


def _check_labels(text: str) -> None:
    if text:
        parse_labels(text)


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
class GSP(Weighted):
    groups: str = parameter(
        AUTO, "ranks by group, as '0,1;2,3', file:PATH, or 'auto': by measured speed", check=_check_groups, file=True
    )
    labels: str = parameter(
        "", "a label for each rank, as 'a,a,b' or 'a*2,b': equal ones are a group", check=_check_labels
    )
    ratio: float = parameter(1.5, "auto: the mean step times of two groups differ by this factor at least", low=1.0)
    regroup: int = parameter(20, "auto: look at the speeds again every so many exchanges a worker; 0: never", low=0)
    hysteresis: float = parameter(0.1, "auto: gain in silhouette that is worth regrouping", low=0.0, high=1.0)
    weighting: str = parameter(
        "inverse",
        "weight of a late update: none, inverse (1/Y), power:p, exponential:a, cutoff:limit",
        check=Weighting.parse,
    )

    mixes_steps = True

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        check_written(self.name, self.groups, self.labels, workers)

    def rate_share(self, workers: int) -> RateShare:
        return super().rate_share(len(self.written()) or workers)  # the number of measured groups is not known yet

    def written(self) -> Groups:
        """The groups that the user wrote down; () for auto."""
        return groups_written(self.groups, self.labels)

    def worker(self, servers: int) -> type[Role]:
        return GroupedWorker if self.regroup and not self.written() else ClockedWorker

    Worker = GroupedWorker
    Server = GroupedServer
    Coordinator = GroupingCoordinator
